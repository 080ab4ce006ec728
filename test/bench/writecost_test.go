package main

import (
	"testing"
	"time"
)

func TestBytesWrittenAreReadOfAProcess(t *testing.T) {
	n, err := parseIO("rchar: 1\nwchar: 4711\nsyscr: 2\nwrite_bytes: 3\n")
	if err != nil || n != 4711 {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := parseIO("rchar: 1\n"); err == nil {
		t.Error("there is none, and no error")
	}
}

func TestAWriteIsNotChargedWithWhatTheTimeCostsAnyway(t *testing.T) {
	idle := cost{seconds: 10, revisions: 1, wal: 100, api: time.Second}.each(10, cost{})
	got := cost{seconds: 60, requests: 180, writes: 180, revisions: 186, wal: 180_600, api: 15 * time.Second}.each(180, idle)
	if got.revisions != 1 || got.wal != 1000 || got.api != 50*time.Millisecond || got.requests != 1 {
		t.Errorf("%+v", got)
	}
}
