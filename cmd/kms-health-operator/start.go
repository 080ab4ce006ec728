package main

import (
	"cmp"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/logging"
	"github.com/kms-health/kms-health/pkg/operator"
	"github.com/kms-health/kms-health/pkg/version"
)

// Defaults of flags from the environment.
const (
	namespaceVariable = "POD_NAMESPACE"
	podVariable       = "POD_NAME"
	imageVariable     = "REPORTER_IMAGE"
	releaseVariable   = "OPERATOR_IMAGE_VERSION" // as OpenShift's operators have it
)

func newStart() *cobra.Command {
	o := operator.Options{Pod: os.Getenv(podVariable), Version: cmp.Or(os.Getenv(releaseVariable), version.Version)}
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Run the operator of a cluster until SIGTERM or SIGINT",
		Long: `Keeps the reporters of a cluster as the configuration file describes them, and
follows every change of the file and of the cluster, until SIGTERM or SIGINT. It
starts without the file and without the API server, and waits for both.

Every replica serves /healthz, /readyz (200 while a configuration is active) and
/metrics. One at a time works: the holder of the Lease kms-health-operator. One that
loses the lease ends with exit code 1.

Environment: POD_NAMESPACE, REPORTER_IMAGE and KUBECONFIG are the defaults of flags, and
  POD_NAME        the holder's name in the lease. Without it each start has a new name,
                  and waits until the lease of a process that was killed expires
  IS_OPENSHIFT    false on another Kubernetes, by default true
  OPERATOR_IMAGE_VERSION
                  the version of ClusterOperator/kms-health: that of an OpenShift release.
                  Without it, this program's`,
		Example: `  # From a workstation, as the user of a kubeconfig.
  kms-health-operator start --kubeconfig ~/.kube/config --config operator.yaml \
    --namespace kms-health --image REGISTRY/kms-health-reporter@sha256:… \
    --metrics-bind-address 0 --leader-elect=false`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.OpenShift, err = operator.IsOpenShift(true); err != nil {
				return usageError{err}
			}
			if err := o.Validate(); err != nil {
				return usageError{err}
			}
			// The operator must not end when the reader of its log closes.
			signal.Ignore(syscall.SIGPIPE)
			log := logging.Start(os.Stderr)
			defer log.Flush(250 * time.Millisecond) // of its last lines
			if err := operator.RunOperator(cmd.Context(), o); err != nil {
				return err
			}
			klog.InfoS("Ended")
			return nil
		},
	}
	addStartFlags(cmd.Flags(), &o)
	return cmd
}

func addStartFlags(f *pflag.FlagSet, o *operator.Options) {
	f.SortFlags = false
	f.StringVar(&o.ConfigFile, "config", defaultConfig, "the configuration `file`; it may appear later")
	f.StringVar(&o.Kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"),
		"a kubeconfig `file`; without it the pod's own ServiceAccount is used")
	f.StringVar(&o.Namespace, "namespace", cmp.Or(os.Getenv(namespaceVariable), contract.KubernetesNamespace),
		"the `namespace` of the operator, and of the reporters that are pods of their own")
	f.StringVar(&o.Image, "image", os.Getenv(imageVariable),
		"the reporter's `image`, if the configuration file has none")
	f.BoolVar(&o.LeaderElect, "leader-elect", true, "elect one replica to work, by a Lease")
	f.BoolVar(&o.SingleReplica, "single-replica", false,
		"there is one replica: the lease lasts 270s, which outlasts a restart of the only API server, instead of 137s")
	f.BoolVar(&o.KeepCA, "keep-ca", false,
		"keep the annotation "+contract.CAAnnotation+" of the operator's own Deployment current: the API server's CA")
	f.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8443",
		"the `address` of /metrics over HTTPS, for clients whom the API server allows to get that path; 0: none")
	f.StringVar(&o.MetricsCertDir, "metrics-cert-dir", "",
		"a `directory` with tls.crt and tls.key, read at each connection; without it a self-signed certificate is used")
	f.StringVar(&o.HealthAddress, "health-bind-address", ":8081",
		"the `address` of /healthz and /readyz over HTTP; 0: none")
	f.DurationVar(&o.DegradedInertia, "degraded-inertia", 2*time.Minute,
		"how long a problem must last before ClusterOperator/kms-health is Degraded")
}
