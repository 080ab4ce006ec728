package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/test/apiservers"
)

// operator measures the operator, in a cluster of its own.
func (l *lab) operator(ctx context.Context) (err error) {
	l.say("building the operator")
	built, binary := filepath.Join(l.dir, "operator-built"), filepath.Join(l.dir, "kms-health-operator")
	if err := build(ctx, "./cmd/kms-health-operator", built); err != nil {
		return err
	}
	if err := unpack(built, binary); err != nil {
		return err
	}
	info, err := os.Stat(binary)
	if err != nil {
		return err
	}
	l.table.add(row{what: "operator: binary, stripped", measured: megabytes(info.Size())})

	e, err := l.newEstate(ctx, binary)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	for _, measure := range []func(context.Context, *estate) error{
		l.quietTime, l.reportedTime, l.followSecret, l.followFile,
	} {
		if err := measure(ctx, e); err != nil {
			return errors.Join(err, e.process.alive())
		}
	}
	return nil
}

// quietTime measures what the operator does while nothing happens.
func (l *lab) quietTime(ctx context.Context, e *estate) error {
	l.say("nothing happens around the operator, for %s", l.plan.quiet)
	began := time.Now()
	before, err := cpuTime(e.process.pid)
	if err != nil {
		return err
	}
	if err := pause(ctx, l.plan.quiet); err != nil {
		return err
	}
	after, err := cpuTime(e.process.pid)
	if err != nil {
		return err
	}
	requests, err := e.requests(ctx, began)
	if err != nil {
		return err
	}
	quiet := fmt.Sprintf("operator, quiet for %s: ", l.plan.quiet)
	l.table.add(row{what: quiet + "CPU, user and system", measured: milliseconds(after - before)})
	byVerb, writes := map[string]int{}, 0
	for _, r := range requests {
		what := r.Verb
		if r.ObjectRef != nil && r.ObjectRef.Resource == "leases" {
			what += " of its lease"
		}
		byVerb[what]++
		if writesOf(r) {
			writes++
			l.say("the operator wrote: %s %s", r.Verb, r.RequestURI)
		}
	}
	list := []string{}
	for _, verb := range slices.Sorted(maps.Keys(byVerb)) {
		list = append(list, fmt.Sprintf("%d %s", byVerb[verb], verb))
	}
	l.table.add(row{
		what: quiet + "requests", measured: orDash(strings.Join(list, ", ")),
		value: fmt.Sprintf("%d writes", writes), bound: "0 writes", verdict: atMost(writes, 0),
	})
	return nil
}

// reportedTime measures memory while reporters report: each on its node, once a
// second, on every operator resource.
func (l *lab) reportedTime(ctx context.Context, e *estate) error {
	l.say("reporters report around the operator, for %s", l.plan.reports)
	// The first reports are news, which is rolled up.
	if err := l.reportAndScrape(ctx, e, firstReports); err != nil {
		return err
	}
	before, err := memoryOf(e.process.pid)
	if err != nil {
		return err
	}
	cpuBefore, err := cpuTime(e.process.pid)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := l.reportAndScrape(ctx, e, l.plan.reports); err != nil {
		return err
	}
	after, err := memoryOf(e.process.pid)
	if err != nil {
		return err
	}
	cpuAfter, err := cpuTime(e.process.pid)
	if err != nil {
		return err
	}
	requests, err := e.requests(ctx, began)
	if err != nil {
		return err
	}
	for _, r := range requests {
		if writesOf(r) && r.ObjectRef != nil && !strings.HasSuffix(r.ObjectRef.Resource, "reviews") {
			return fmt.Errorf("the operator writes because of reports: %s %s", r.Verb, r.RequestURI)
		}
	}
	judged := atMost(max(before.all, after.all), maxOperatorResident)
	if l.plan.reports < fullReports {
		judged = notJudged
	}
	l.table.add(row{
		what:     fmt.Sprintf("operator, reports for %s: resident memory (VmRSS)", l.plan.reports),
		measured: megabytes(before.all) + " to " + megabytes(after.all),
		bound:    megabytes(maxOperatorResident),
		verdict:  judged,
	})
	l.table.add(row{what: "  of it not the binary's (RssAnon)", measured: megabytes(before.anon) + " to " + megabytes(after.anon)})
	l.table.add(row{what: "  the most it ever was (VmHWM)", measured: megabytes(max(before.peak, after.peak))})
	l.table.add(row{what: "  CPU meanwhile, user and system", measured: milliseconds(cpuAfter - cpuBefore)})
	return nil
}

// firstReports is how long the first reports are given.
const firstReports = 5 * time.Second

// reportAndScrape fails if there are fewer reports than there should be, or
// Prometheus is not told of three deliveries.
func (l *lab) reportAndScrape(ctx context.Context, e *estate, d time.Duration) error {
	began, written, scraped := time.Now(), 0, 0
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for time.Since(began) < d {
		for _, s := range apiservers.All {
			for _, node := range nodeNames {
				if err := e.report(ctx, s, node, began); err != nil {
					return err
				}
				written++
			}
		}
		if time.Since(began) >= time.Duration(scraped)*scrapeEvery {
			scraped++
			if err := e.scrape(ctx); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	if want := int(d.Seconds()) * len(apiservers.All) * len(nodeNames); written < want*9/10 {
		return fmt.Errorf("%d reports in %s, must be %d: this would not measure the work", written, d, want)
	}
	return nil
}

func (e *estate) scrape(ctx context.Context) error {
	m, err := e.metrics.scrape(ctx)
	if err != nil {
		return err
	}
	delivered := 0.0
	for series, value := range m {
		if strings.HasPrefix(series, "kms_health_operator_delivered{") {
			delivered += value
		}
	}
	if delivered != float64(len(apiservers.All)) {
		return fmt.Errorf("the operator's metrics tell of %.0f deliveries, there are %d", delivered, len(apiservers.All))
	}
	return nil
}
