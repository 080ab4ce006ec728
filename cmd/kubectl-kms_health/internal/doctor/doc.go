// Package doctor checks an installation: what is there, what is wrong with it, and what to
// do next.
//
// Collect makes a Snapshot through a Reader, of a cluster or of a must-gather. Evaluate is
// pure, from a Snapshot to a Diagnosis: the same objects give the same findings, wherever
// they were read. What could not be read is Unknown, never OK.
//
// Findings follow from states and reasons of objects, not from texts. Secrets are not read.
package doctor
