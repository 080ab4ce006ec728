package bench

import (
	"flag"
	"testing"
	"time"
)

var ofTogether = flag.Bool("together", false, "measure writes with reports in upstream's shape beside")

// TestTogether measures the disk writes of etcd while upstream's reporter and this one report on the same node.
func TestTogether(t *testing.T) {
	if !*ofTogether {
		t.Skip("not measured without -together")
	}
	f := newFixture(t)
	build := f.reporters()[0]
	var pairs []*pair
	for i, v := range []variant{
		{"no reporter", "", 0, 0}, {"this build", build, 10 * time.Second, 0},
		{"upstream's shape", "", 10 * time.Second, 0}, {"both", build, 10 * time.Second, 0},
	} {
		p := f.newPair(i, v)
		if v.interval > 0 {
			p.addNode()
		}
		if v.name == "both" {
			p.nodeOf[0].reportTyped(p.admin, v.interval)
		}
		pairs = append(pairs, p)
	}
	f.sideBySide(pairs, (*pair).measureWrites)
	for _, p := range pairs {
		f.progress("%s: %d writes, %s in %s, %s less without a reporter", p.name, p.writes, megabytes(int64(p.bytes)),
			*ofHealth, megabytes(int64(p.bytes-pairs[0].bytes)))
	}
}
