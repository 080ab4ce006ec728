package main

import (
	"os"
	"testing"
)

func TestSwapReplacesTheContentAndLeavesNothingOld(t *testing.T) {
	c := configMap{dir: t.TempDir()}
	for _, content := range []string{"one", "two", "three"} {
		if _, err := c.swap(content); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(c.file()); err != nil || string(got) != content {
			t.Errorf("%q, %v; want %q", got, err, content)
		}
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 3 { // the link, the file's link, and one folder
		t.Errorf("%v", entries)
	}
}
