package main

import (
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/rollup"
)

func TestFleetIsHealthyAsItReportsAndIllWhereItIsMadeIll(t *testing.T) {
	now := time.Now()
	f, err := newFleet(now)
	if err != nil {
		t.Fatal(err)
	}
	members := map[int]*member{}
	look := func(c *fleetCluster) (degraded string, writes bool) {
		t.Helper()
		raw, err := c.event(f.template)
		if err != nil {
			t.Fatal(err)
		}
		if members[c.number] == nil {
			members[c.number] = newMember(c.number)
		}
		m := members[c.number]
		if _, writes, err = m.report(raw); err != nil {
			t.Fatal(err)
		}
		if n := len(m.resource.Reports); n != fleetNodes {
			t.Fatalf("%d reports were read", n)
		}
		if !m.resource.Reports[0].Ours {
			t.Error("the reports are not known as ours")
		}
		return m.result.Condition(rollup.Degraded).Status, writes
	}
	// Clusters differ in their number alone, so every tenth tells of all.
	followed := func(c *fleetCluster) bool { return c.number%10 == 0 }
	for i := range f.clusters {
		if !followed(&f.clusters[i]) {
			continue
		}
		if degraded, writes := look(&f.clusters[i]); degraded != rollup.False || !writes {
			t.Fatalf("cluster %d, first seen: %s, written: %t", i, degraded, writes)
		}
	}
	ill := f.sicken(fleetSize / 2)
	changed := map[int]bool{}
	for range fleetSize * fleetNodes {
		c := f.report(now)
		if !followed(c) && !c.ill {
			continue
		}
		degraded, writes := look(c)
		if (degraded == rollup.True) != c.ill {
			t.Fatalf("cluster %d is ill: %t, and Degraded is %s", c.number, c.ill, degraded)
		}
		if writes {
			changed[c.number] = true
		}
	}
	if len(changed) != ill || ill != 2 {
		t.Errorf("%d clusters are ill, of %d the verdict changed", ill, len(changed))
	}
}

func TestEveryNodeOfAFleetReportsOncePerInterval(t *testing.T) {
	f, err := newFleet(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(time.Hour)
	for range fleetSize * fleetNodes {
		f.report(end)
	}
	for _, c := range f.clusters {
		for node, at := range c.reports {
			if !at.Equal(end) {
				t.Fatalf("node %d of cluster %d did not report", node, c.number)
			}
		}
	}
}
