// Package ssa writes objects by Server-Side Apply.
package ssa

import (
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// AtLeast reports whether a version of an object is at least as new as one that was written.
func AtLeast(version, written string) bool {
	order, err := resourceversion.CompareResourceVersion(version, written)
	return err != nil || order >= 0
}
