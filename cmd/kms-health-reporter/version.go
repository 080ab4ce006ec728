package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kms-health/kms-health/pkg/version"
)

func buildInfo() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "kms_health_reporter_build_info",
		Help:        "1, with the version of the program and of Go, the FIPS 140-3 mode (off, on, only) and the version of Go's cryptographic module.",
		ConstLabels: version.Labels(),
	}, func() float64 { return 1 })
}

// info has the node, which no other metric has: alerts add it by a join.
func info(node string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "kms_health_reporter_info",
		Help:        "1, with the node that it reports on.",
		ConstLabels: prometheus.Labels{"node": node},
	}, func() float64 { return 1 })
}
