package main

import (
	"strings"
	"testing"
)

func TestSummaryCountsAndPrints(t *testing.T) {
	const (
		passA  = `{"Action":"start","Package":"a"} {"Action":"run","Package":"a","Test":"T"} {"Action":"output","Package":"a","Test":"T","Output":"noise\n"} {"Action":"pass","Package":"a","Test":"T"} {"Action":"output","Package":"a","Output":"PASS\n"} {"Action":"output","Package":"a","Output":"ok  \ta\t0.1s\n"} {"Action":"pass","Package":"a"}`
		failA  = `{"Action":"start","Package":"a"} {"Action":"run","Package":"a","Test":"T"} {"Action":"output","Package":"a","Test":"T","Output":"why\n"} {"Action":"fail","Package":"a","Test":"T"} {"Action":"output","Package":"a","Output":"FAIL\ta\t0.1s\n"} {"Action":"fail","Package":"a"}`
		skipA  = `{"Action":"start","Package":"a"} {"Action":"run","Package":"a","Test":"T"} {"Action":"skip","Package":"a","Test":"T"} {"Action":"output","Package":"a","Output":"ok  \ta\t0.1s\n"} {"Action":"pass","Package":"a"}`
		buildB = `{"Action":"build-output","ImportPath":"b [b.test]","Output":"b.go:1: bad\n"} {"Action":"build-fail","ImportPath":"b [b.test]"} {"Action":"start","Package":"b"} {"Action":"output","Package":"b","Output":"FAIL\tb [build failed]\n"} {"Action":"fail","Package":"b"}`
		noneC  = `{"Action":"start","Package":"c"} {"Action":"output","Package":"c","Output":"?   \tc\t[no test files]\n"} {"Action":"skip","Package":"c"}`
		panicD = `{"Action":"start","Package":"d"} {"Action":"run","Package":"d","Test":"T"} {"Action":"output","Package":"d","Test":"T","Output":"panic: oh\n"} {"Action":"output","Package":"d","Output":"FAIL\td\t0.1s\n"} {"Action":"fail","Package":"d"}`
	)
	tests := []struct {
		name       string
		events     []string
		wantTotals string
		wantOutput string
	}{
		{"a pass is one closing line", []string{passA}, "1 passed, 0 failed", "ok  \ta\t0.1s\n"},
		{"a failure is printed in full", []string{failA}, "0 passed, 1 failed", "why\nFAIL\ta\t0.1s\n"},
		{"a skip is reported", []string{skipA}, "0 passed, 0 failed, 1 skipped", "ok  \ta\t0.1s\n"},
		{"a package that does not build is a failure", []string{buildB, passA}, "1 passed, 1 failed", "b.go:1: bad\nFAIL\tb [build failed]\nok  \ta\t0.1s\n"},
		{"a package without tests is not mentioned", []string{noneC}, "0 passed, 0 failed", ""},
		{"a test that never ended is a failure", []string{panicD}, "0 passed, 1 failed", "panic: oh\nFAIL\td\t0.1s\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			sum := newSummary(&out)
			for _, run := range test.events {
				if err := sum.read(strings.NewReader(run)); err != nil {
					t.Fatal(err)
				}
			}
			if got := sum.totals(); got != test.wantTotals {
				t.Errorf("totals: %q, want %q", got, test.wantTotals)
			}
			if got := out.String(); got != test.wantOutput {
				t.Errorf("output: %q, want %q", got, test.wantOutput)
			}
		})
	}
}

func TestEventsThatAreNotJSONAreAnError(t *testing.T) {
	if err := newSummary(new(strings.Builder)).read(strings.NewReader("not json")); err == nil {
		t.Error("no error")
	}
}
