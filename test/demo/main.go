// Command demo shows the programs at work: real processes, no root, no internet.
//
//	demo                   kms-health-reporter beside KMS plugins, without a cluster
//	demo cluster [--stay]  kms-health-operator and its reporters on a real etcd,
//	                       kube-apiserver and kube-controller-manager with OpenShift's CRDs
//
// It ends with 0 only if everything that it showed is what happened.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	const starts = 4 * time.Minute // and ends
	flags := flag.NewFlagSet("demo", flag.ExitOnError)
	stay := flags.Bool("stay", false, "keep the cluster, with KMS on, until Ctrl-C")
	name, bound, script := "demo", 2*time.Minute, reporterDemo
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "cluster" {
		name, bound, args = "demo-cluster", starts, args[1:]
		script = func(d *demo) { clusterDemo(d, *stay) }
	}
	_ = flags.Parse(args) // ends the process on an error
	signals, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := runScript(signals, bound, script)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\n%s: %v\n", name, err)
		os.Exit(1)
	}
}
