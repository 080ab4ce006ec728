// Package operatorcr reads and changes the status of the resources of pkg/contract, as far as it
// belongs to this project.
//
// Read decodes a status: the reports of nodes, in either form and by any writer, and
// this project's conditions. Removal is the patch that removes reports of this project. The
// package does not evaluate the reports.
package operatorcr
