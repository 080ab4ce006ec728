// Package view judges what operator resources say of KMS plugins, for people to
// look at: by the reports alone, so that it needs no operator, with what the
// operator last wrote beside it.
//
// All of it is pure: from resources and an instant to a Status.
package view
