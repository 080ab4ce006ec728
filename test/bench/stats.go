package main

import (
	"cmp"
	"slices"
)

// median returns the middle of a list in order, the lower of the two of an even
// number, so that it is a value that was measured. The list is not empty.
func median[T cmp.Ordered](list []T) T {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[(len(sorted)-1)/2]
}
