package main

import "testing"

func TestLogLineTellsWhichFileIsInForce(t *testing.T) {
	for line, want := range map[string]string{
		`I1121 05:00:00.000000       1 reporter.go:1] "Configuration in force" file="/a" sha256="0a1b" plugins=2 interval="1s"`: "0a1b",
		`E1121 05:00:00.000000       1 reporter.go:1] "Configuration file cannot be used" file="/a" sha256="0a1b"`:              "",
		`I1121 05:00:00.000000       1 reporter.go:1] "Configuration in force" file="/a"`:                                       "",
		"": "",
	} {
		got, ok := inForce(line)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %t; want %q", line, got, ok, want)
		}
	}
}
