package main

import (
	"slices"
	"strings"
	"testing"
)

func TestRotationNeverComesBackToASet(t *testing.T) {
	seen := map[string]bool{"1": true}
	last := []string{"1"}
	for i := range 30 {
		now := rotation(i)
		if text := strings.Join(now, " "); seen[text] {
			t.Errorf("step %d: %s was there before", i, text)
		} else {
			seen[text] = true
		}
		if !slices.ContainsFunc(now, func(id string) bool { return slices.Contains(last, id) }) {
			t.Errorf("step %d: from %v to %v no key stays", i, last, now)
		}
		last = now
	}
}
