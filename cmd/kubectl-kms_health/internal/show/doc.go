// Package show puts a view.Status into words: as a table, as prose about one node,
// or encoded. It decides nothing, and writes nowhere.
package show
