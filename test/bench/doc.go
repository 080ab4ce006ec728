// Package bench measures the reporter and the operator as users run them, as
// processes, and compares them with bounds: `make bench`.
//
// Each measurement is a test that is skipped without -measure. A value over its bound
// fails the test. The results of a run are printed as one table at its end.
//
// Where a value of the reporter depends on the machine, it is compared with a program
// that does the minimum of a reporter's work (./floor) in the same run.
package bench
