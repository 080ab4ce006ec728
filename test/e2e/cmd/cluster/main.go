// cluster keeps a cluster up (package cluster) until it is ended.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kms-health/kms-health/test/e2e/cluster"
)

func main() {
	cluster.Main()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	c, err := cluster.Start(ctx, cluster.Options{Assets: os.Getenv("KUBEBUILDER_ASSETS"), Log: os.Stdout})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("up")
	out, err := c.Kubectl(ctx, "", "get", "pods,nodes", "-A", "-o", "wide")
	fmt.Println(out, err)
	<-ctx.Done()
	fmt.Println(c.Stop(context.Background()))
}
