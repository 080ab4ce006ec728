package main

import (
	"os"
	"strings"
	"testing"
)

func TestTheReadmeQuotesTheOutput(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	output, err := os.ReadFile("testdata/unhealthy.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```\n"+string(output)+"```\n") {
		t.Error("README.md does not quote testdata/unhealthy.txt")
	}
}
