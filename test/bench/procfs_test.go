package main

import (
	"os"
	"testing"
	"time"
)

func TestSchedstatIsReadInNanoseconds(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"497808726 4337239 51\n": 497808726,
		"0 0 1\n":                0,
		"":                       -1,
		"1 2\n":                  -1,
		"x 2 3\n":                -1,
	} {
		got, err := parseSchedstat(text)
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestStatusIsReadInBytes(t *testing.T) {
	const status = "Name:\tx\nVmHWM:\t    1800 kB\nVmRSS:\t    1776 kB\nRssAnon:\t     112 kB\nRssFile:\t    1664 kB\n"
	for name, tt := range map[string]struct {
		text string
		want memory
		bad  bool
	}{
		"a process": {status, memory{all: 1776 * 1024, anon: 112 * 1024, peak: 1800 * 1024}, false},
		"a zombie":  {"Name:\tx\nState:\tZ (zombie)\n", memory{}, true},
		"nonsense":  {"VmHWM:\t1 kB\nVmRSS:\tmuch\nRssAnon:\t1 kB\n", memory{}, true},
		"empty":     {"", memory{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseStatus(tt.text)
			if (err != nil) != tt.bad || got != tt.want {
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func TestThisProcessCanBeRead(t *testing.T) {
	pid := os.Getpid()
	before, err := cpuTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for after := before; after < before+5*time.Millisecond; {
		if time.Now().After(deadline) {
			t.Fatal("this loop is given no CPU time")
		}
		if after, err = cpuTime(pid); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := memoryOf(pid); err != nil || m.all < m.anon || m.anon == 0 || m.peak < m.anon {
		t.Errorf("memory: %+v, %v", m, err)
	}
	n, err := descriptors(pid)
	if err != nil || n < 3 {
		t.Errorf("descriptors: %d, %v", n, err)
	}
}
