package bench

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

var (
	ofWrites  = flag.Bool("writes", false, "measure writes and faults, see make bench-writes; with -base")
	ofHealth  = flag.Duration("health", 15*time.Minute, "for how long writes are measured")
	faults    = flag.Int("faults", 60, "how many faults each plugin has")
	nodeCount = flag.Int("nodes", 16, "how many nodes report to each API server, with a plugin each")
)

// The bounds.
const (
	maxFewerDelay = 0.22 // with unchangedEvery, as a factor of the other build's default
	maxFewerBytes = 0.55 // the same
	sameDefault   = 0.05 // the tolerance for this build's default and the other's
)

const (
	// steady is the age of an API server when the measurement of writes begins: half of the time between two compactions
	// (kube-apiserver's --etcd-compaction-interval). So each measurement contains the same number of compactions.
	steady = 150 * time.Second
	// spread is the time in which the nodes' reporters start, so that they do not write all at once.
	spread = time.Minute
	// committed is longer than etcd takes to commit a write to its database (--backend-batch-interval).
	committed = time.Second
)

// variant is a kind of reporter with its settings.
type variant struct {
	name                string
	build               string        // the path of the reporter; empty: upstream's form of reports
	interval, unchanged time.Duration // interval 0: no reporter
}

// The indexes of the variants.
const (
	thisDefault = iota
	baseDefault
	fewerWrites
	upstream
	idle
)

func variants(this, base string) []variant {
	return []variant{
		thisDefault: {"this build, default", this, contract.DefaultInterval, 0},
		baseDefault: {"the base, default", base, contract.DefaultInterval, 0},
		fewerWrites: {"this build, interval 5s, unchangedEvery 1m", this, 5 * time.Second, time.Minute},
		upstream:    {"upstream's shape", "", contract.DefaultInterval, 0},
		idle:        {"no reporter", "", 0, 0},
	}
}

// pair is an etcd and a kube-apiserver, with an operator resource of 43 kB, and the nodes that report to it.
type pair struct {
	*fixture
	variant
	number  int
	admin   dynamic.Interface
	object  *observer
	began   time.Time
	plugins []*kmsplugin.Plugin // by node
	nodeOf  []*node

	writes int     // writes while all plugins were healthy
	bytes  float64 // written to etcd's disk in the same time
	delays [][]time.Duration
}

// TestWrites measures how soon a fault is reported, and etcd's disk writes for the reports of healthy plugins, of
// several reporters side by side. It takes 80 minutes.
func TestWrites(t *testing.T) {
	if !*ofWrites || *base == "" {
		t.Skip("not measured without -writes and -base: see make bench-writes")
	}
	f := newFixture(t)
	builds := f.reporters()
	var pairs []*pair
	for i, v := range variants(builds[0], builds[1]) {
		pairs = append(pairs, f.newPair(i, v))
	}
	for range *nodeCount {
		for _, p := range pairs[:idle] {
			p.addNode()
		}
		f.pause(spread / time.Duration(*nodeCount))
	}
	f.progress("writes of healthy plugins, for %s", *ofHealth)
	f.sideBySide(pairs, (*pair).measureWrites)
	f.progress("%d faults on each of %d nodes", *faults, *nodeCount)
	moments := drawMoments(*nodeCount, *faults)
	f.sideBySide(pairs[:idle], func(p *pair, ctx context.Context) error { return p.measureFaults(ctx, moments) })
	judgePairs(f, pairs)
}

// sideBySide calls a function for all pairs at once.
func (f *fixture) sideBySide(pairs []*pair, do func(*pair, context.Context) error) {
	group, ctx := errgroup.WithContext(running)
	for _, p := range pairs {
		group.Go(func() error {
			if err := do(p, ctx); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			f.progress("%s: done", p.name)
			return nil
		})
	}
	f.must(group.Wait())
}

// newPair starts a pair.
func (f *fixture) newPair(number int, v variant) *pair {
	own := *f
	p := &pair{
		fixture: &own, variant: v, number: number, object: newObserver(), began: time.Now(),
		delays: make([][]time.Duration, *nodeCount),
	}
	p.startCluster(true)
	p.admin = dynamic.NewForConfigOrDie(p.cluster.RESTConfig())
	p.fill(p.admin, apiservers.Kube)
	ctx, stop := context.WithCancel(running)
	p.Cleanup(stop)
	go informers.New(p.admin, informers.Selection{
		Resource: controlplane.OperatorGVR(apiservers.Kube.Resource), Name: controlplane.ClusterObject,
	}, p.object.observe).Run(ctx)
	p.must(p.object.await(ctx, waitLimit, "the operator resource", func() bool { return p.object.versions > 0 }))
	return p
}

// addNode adds a node with a plugin and its reporter.
func (p *pair) addNode() {
	n := p.newNode(p.nodeName(len(p.plugins)), p.build, 1)
	if p.build == "" {
		n.reportTyped(p.admin, p.interval)
	} else {
		n.configure(n.render(settings{
			interval: p.interval, unchanged: p.unchanged, kubeconfig: n.kubeconfig(p.access), keyIDs: []int{1},
		}))
		n.run()
	}
	p.plugins, p.nodeOf = append(p.plugins, n.plugins[0]), append(p.nodeOf, n)
}

func (p *pair) nodeName(i int) string { return fmt.Sprintf("%d-%d", p.number, i) }

// reported waits until a node reports a status.
func (p *pair) reported(ctx context.Context, node int, status contract.Status) error {
	name := p.nodeName(node)
	return p.object.await(ctx, 4*p.interval+waitLimit, fmt.Sprintf("%s reports %s", name, status),
		func() bool { return p.object.status[name] == status })
}

// mark is a moment of the measurement of writes, with the counters at that time.
type mark struct {
	at              time.Time
	versions, bytes int64
}

// mark waits for a write, if the variant writes at all. So the number of writes between two marks is whole.
func (p *pair) mark(ctx context.Context) (m mark, err error) {
	if p.interval > 0 {
		before := p.object.count()
		err := p.object.await(ctx, 4*max(p.interval, p.unchanged), "a write",
			func() bool { return p.object.versions > before })
		if err != nil {
			return m, err
		}
	}
	m.at, m.versions = time.Now(), p.object.count()
	if err := sleep(ctx, committed); err != nil {
		return m, err
	}
	m.bytes, err = diskWrites(p.cluster.EtcdPID())
	return m, err
}

func (p *pair) measureWrites(ctx context.Context) error {
	for node := range p.plugins {
		if err := p.reported(ctx, node, contract.Healthy); err != nil {
			return err
		}
	}
	if err := sleep(ctx, time.Until(p.began.Add(min(steady, *ofHealth)))); err != nil {
		return err
	}
	first, err := p.mark(ctx)
	if err != nil {
		return err
	}
	if err := sleep(ctx, time.Until(first.at.Add(*ofHealth))); err != nil {
		return err
	}
	last, err := p.mark(ctx)
	p.writes = int(last.versions - first.versions)
	p.bytes = float64(last.bytes-first.bytes) * ofHealth.Seconds() / last.at.Sub(first.at).Seconds()
	return err
}

// drawMoments draws the beginning of each fault of each node, as a fraction of an interval. The moments are random, but
// evenly distributed in all. Otherwise the median of a few would vary.
func drawMoments(nodes, faults int) [][]float64 {
	moments := make([][]float64, nodes)
	for i, place := range rand.Perm(nodes * faults) {
		moments[i%nodes] = append(moments[i%nodes], (float64(place)+rand.Float64())/float64(nodes*faults))
	}
	return moments
}

func (p *pair) measureFaults(ctx context.Context, moments [][]float64) error {
	group, ctx := errgroup.WithContext(ctx)
	for node := range moments {
		group.Go(func() (err error) {
			p.delays[node], err = p.measureNode(ctx, node, moments[node])
			return err
		})
	}
	return group.Wait()
}

// measureNode returns the time from the beginning of each fault to its report in the API server. A fault begins at its
// fraction of an interval after the plugin was reported as healthy.
func (p *pair) measureNode(ctx context.Context, node int, moments []float64) (delays []time.Duration, err error) {
	plugin := p.plugins[node]
	for i, moment := range moments {
		if node == 0 && i%10 == 0 {
			p.progress("%s: %d of %d faults", p.name, i, len(moments))
		}
		if err := p.reported(ctx, node, contract.Healthy); err != nil {
			return nil, err
		}
		if err := sleep(ctx, time.Duration(moment*float64(p.interval))); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := plugin.SetFault(kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{"sealed"}}); err != nil {
			return nil, err
		}
		if err := p.reported(ctx, node, contract.Unhealthy); err != nil {
			return nil, err
		}
		delays = append(delays, time.Since(began))
		if err := plugin.ClearFaults(); err != nil {
			return nil, err
		}
	}
	return delays, nil
}

// judgePairs compares the pairs, and adds the results to the table.
func judgePairs(f *fixture, pairs []*pair) {
	medians, bytes := make([]time.Duration, len(pairs)), make([]float64, len(pairs))
	for i, p := range pairs {
		if i == idle {
			judge(f, fmt.Sprintf("%s: to etcd's disk in %s", p.name, *ofHealth), int64(p.bytes), unbounded, megabytes)
			continue
		}
		var all []time.Duration
		for _, delays := range p.delays {
			all = append(all, delays...)
		}
		medians[i], bytes[i] = median(all), p.bytes-pairs[idle].bytes
		judge(f, fmt.Sprintf("%s: fault to report, median of %d", p.name, len(all)), medians[i], unbounded, seconds)
		judge(f, fmt.Sprintf("  to etcd's disk in %s, less without a reporter (%d writes)", *ofHealth, p.writes),
			int64(bytes[i]), unbounded, megabytes)
	}
	delay := func(i int) float64 { return float64(medians[i]) / float64(medians[baseDefault]) }
	disk := func(i int) float64 { return bytes[i] / cmp.Or(bytes[baseDefault], 1) }
	judge(f, "unchangedEvery: fault to report, times the base's", delay(fewerWrites), maxFewerDelay, times)
	judge(f, "unchangedEvery: to etcd's disk, times the base's", disk(fewerWrites), maxFewerBytes, times)
	judgeEqual(f, "default: fault to report, times the base's", delay(thisDefault), sameDefault)
	judgeEqual(f, "default: to etcd's disk, times the base's", disk(thisDefault), sameDefault)
}
