// Package show formats a view.Status: as a table, as text about one node, or encoded. It
// contains no decisions, and does not write.
package show
