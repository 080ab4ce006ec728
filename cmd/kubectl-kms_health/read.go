package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/source"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/version"
)

// facts are the data that was read.
type facts struct {
	targets []view.Target
	now     time.Time // the time of the evaluation
	// partly means that there are targets that could not be read.
	partly bool
	// operatorStopped: the operator has not renewed its Lease in time.
	operatorStopped bool
}

// read reads files or a cluster, and prints on stderr what the reader should know.
func (o *options) read(ctx context.Context) (facts, error) {
	if len(o.files) > 0 {
		return o.readFiles()
	}
	c, err := o.cluster()
	if err != nil {
		return facts{}, err
	}
	return o.readCluster(ctx, c)
}

func (o *options) readFiles() (facts, error) {
	taken, err := o.takeFiles(source.Files{})
	if err != nil {
		return facts{}, err
	}
	f := facts{}
	for _, t := range taken.Targets {
		if t.Name == "" || o.wants(t.Name) {
			f.targets = append(f.targets, t)
		}
	}
	if len(f.targets) == 0 {
		return facts{}, fmt.Errorf("%s: no object of %s found", strings.Join(o.files, ", "), strings.Join(o.wanted(), ", "))
	}
	f.now, err = o.evaluatedAt(taken)
	return f, err
}

// takeFiles reads the files that the flags name.
func (o *options) takeFiles(files source.Files) (source.Taken, error) {
	files.Paths, files.Stdin = o.files, o.stdin
	if len(o.targets) == 1 {
		files.Target = o.targets[0]
	}
	if len(o.nodes) == 1 {
		files.Node = o.nodes[0]
	}
	taken, err := files.Read()
	for _, note := range taken.Notes {
		o.warn("%s", note)
	}
	return taken, err
}

// evaluatedAt is the time at which files are evaluated.
func (o *options) evaluatedAt(taken source.Taken) (time.Time, error) {
	switch {
	case o.at != "":
		return time.Parse(time.RFC3339, o.at)
	case taken.At.IsZero():
		now := o.clock.Now()
		o.note("evaluated as of %s, the current time: the files have no report; --at sets another time", now.UTC().Format(time.RFC3339))
		return now, nil
	default:
		o.note("evaluated as of %s, %s; --at sets another time", taken.At.UTC().Format(time.RFC3339), whatBegan(taken.Began))
		return taken.At, nil
	}
}

func whatBegan(began bool) string {
	if began {
		return "when the must-gather began, by its file timestamp"
	}
	return "the time of the newest report"
}

// cluster is the cluster according to the flags and the environment.
func (o *options) cluster() (*source.Cluster, error) {
	config, err := o.clientConfig().ClientConfig()
	if err != nil {
		if clientcmd.IsEmptyConfig(err) {
			err = errors.New("no cluster is configured: use --kubeconfig FILE, set KUBECONFIG, or read files by --from-file")
		}
		return nil, err
	}
	config.UserAgent = "kubectl-kms-health/" + version.Version
	return source.NewCluster(config, o.timeout, o.clock)
}

func (o *options) clientConfig() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context, AuthInfo: o.user})
}

func (o *options) readCluster(ctx context.Context, c *source.Cluster) (facts, error) {
	found, problems := o.readTargets(ctx, c)
	f := facts{targets: found, now: o.clock.Now(), partly: len(problems) > 0}
	if len(found) == 0 {
		if f.partly {
			return facts{}, errors.Join(problems...)
		}
		return facts{}, o.noneServed(c)
	}
	for _, problem := range problems {
		o.warn("%v", problem)
	}
	if offset := c.Offset(); offset != 0 {
		f.now = f.now.Add(offset)
		o.warn("%s", offsetWords(offset))
	}
	f.operatorStopped = !o.operatorAlive(ctx, c, f.now)
	return f, nil
}

// operatorAlive reports whether the operator runs, by its Lease.
func (o *options) operatorAlive(ctx context.Context, c *source.Cluster, now time.Time) bool {
	lease, ok := c.Lease(ctx, o.leaseNamespaces())
	if !ok || !now.After(lease.Until) {
		return true
	}
	o.warn("the operator has not renewed its Lease for %s (Lease %s/kms-health-operator): its conditions may be outdated",
		duration.HumanDuration(now.Sub(lease.Renewed)), lease.Namespace)
	return false
}

func (o *options) noneServed(c *source.Cluster) error {
	wanted := o.wanted()
	if len(wanted) == 0 {
		return fmt.Errorf("%s has no %s", c, strings.Join(o.targets, ", "))
	}
	return fmt.Errorf("%s has none of %s.operator.openshift.io named cluster, and no KMSHealth\nReports are written there. Check that this is the right cluster (--context); --from-file reads files instead",
		c, strings.Join(wanted, ", "))
}

func offsetWords(offset time.Duration) string {
	which := "behind"
	if offset < 0 {
		which = "ahead of"
	}
	return fmt.Sprintf("this machine's clock is %s %s the API server's; ages are by the API server's clock", duration.HumanDuration(offset.Abs()), which)
}

// warn prints a line to stderr.
func (o *options) warn(format string, args ...any) {
	fmt.Fprintln(o.stderr, "warning: "+show.Lines(fmt.Sprintf(format, args...)))
}

// note prints a line to stderr that is no warning.
func (o *options) note(format string, args ...any) {
	fmt.Fprintln(o.stderr, "note: "+show.Lines(fmt.Sprintf(format, args...)))
}
