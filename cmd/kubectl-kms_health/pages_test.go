package main

import (
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/harness/disk"
)

func TestTheReadmeQuotesTheOutput(t *testing.T) {
	readme := disk.Read(t, "../../README.md")
	output := disk.Read(t, "testdata/unhealthy.txt")
	if !strings.Contains(string(readme), "```\n"+string(output)+"```\n") {
		t.Error("README.md does not quote testdata/unhealthy.txt")
	}
}
