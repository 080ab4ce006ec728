package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kms-health/kms-health/pkg/operator"
	"github.com/kms-health/kms-health/pkg/operator/credentials"
	"github.com/kms-health/kms-health/pkg/operator/sockets"
)

// What the operator learns from its environment.
const (
	namespaceVariable = "POD_NAMESPACE"
	podVariable       = "POD_NAME"
	imageVariable     = "REPORTER_IMAGE"
	openShiftVariable = "IS_OPENSHIFT"

	defaultNamespace = "kms-health"
	leaseName        = "kms-health-operator"
)

type runOptions struct {
	config        string
	kubeconfig    string
	namespace     string
	pod           string
	image         string
	kubeletRoot   string
	leaderElect   bool
	singleReplica bool
	approve       bool
	metrics       string
	metricsCerts  string
	health        string
	inertia       time.Duration
}

func newRun() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Keep the reporters of a cluster, until told to end",
		Long: `Keeps the reporters of a cluster as the configuration file says, and follows
every change of the file and of the cluster, until SIGTERM or SIGINT.

It starts without the file and without the API server, and waits for both.

Environment:
  POD_NAMESPACE   the default of --namespace
  POD_NAME        who holds the lease. Left out: a new name at each start, so that one
                  that was killed must be waited out
  REPORTER_IMAGE  the default of --image
  IS_OPENSHIFT    true or false: whether this is OpenShift. Left out: it is where
                  infrastructures.config.openshift.io/cluster exists
  KUBECONFIG      the default of --kubeconfig`,
		Example: `  # In a cluster, as manifests/ runs it.
  kms-health-operator run

  # From a laptop, as whoever the kubeconfig says.
  kms-health-operator run --kubeconfig ~/.kube/config --config operator.yaml \
    --namespace kms-health --image REGISTRY/kms-health-reporter@sha256:… \
    --metrics-bind-address 0 --leader-elect=false`,
		Args: cobra.NoArgs,
		RunE: works(func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) }),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.config, "config", defaultConfig, "the configuration `file`; it may appear later")
	f.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "a kubeconfig `file`; left out: the pod's own ServiceAccount")
	f.StringVar(&o.namespace, "namespace", orElse(os.Getenv(namespaceVariable), defaultNamespace), "the `namespace` of the operator, and of the reporters that are pods of their own")
	o.pod = os.Getenv(podVariable)
	f.StringVar(&o.image, "image", os.Getenv(imageVariable), "the reporter's `image`, where the file names none")
	f.StringVar(&o.kubeletRoot, "kubelet-root", sockets.KubeletRoot, "the kubelets' `folder` on the nodes")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "let one replica at a time work")
	f.BoolVar(&o.singleReplica, "single-replica", false, "there is one replica: a lease of 270s, which rides out a restart of the only API server, in place of 137s")
	f.BoolVar(&o.approve, "approve-certificates", false, "approve the operator's own requests for client certificates, which needs a right that the shipped role does not hold")
	f.StringVar(&o.metrics, "metrics-bind-address", ":8443", "the `address` of /metrics over HTTPS, for those whom the API server lets get it; 0: nowhere")
	f.StringVar(&o.metricsCerts, "metrics-cert-dir", "", "a `folder` with tls.crt and tls.key; left out: a certificate of its own making")
	f.StringVar(&o.health, "health-bind-address", ":8081", "the `address` of /healthz and /readyz over HTTP; 0: nowhere")
	f.DurationVar(&o.inertia, "degraded-inertia", 2*time.Minute, "how long something must be bad before ClusterOperator/kms-health is Degraded, at least 0")
	return cmd
}

func orElse(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}

func (o *runOptions) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	openShift, err := parseOpenShift(os.Getenv(openShiftVariable))
	if err != nil {
		return err
	}
	config, err := o.restConfig()
	if err != nil {
		return err
	}
	ctrl.SetLogger(klog.Background().V(1))
	klog.InfoS("Starting", "version", version, "config", o.config, "namespace", o.namespace, "server", config.Host)

	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var op *operator.Operator
	mgr, err := o.manager(config, func() *tls.Config { return op.TLS() })
	if err != nil {
		return err
	}
	events := newEvents(typed, o.namespace)
	op = operator.New(operator.Options{
		Client:      client,
		Credentials: credentials.New(typed, clock.RealClock{}),
		Approve:     o.approve,
		CA:          func() ([]byte, error) { return caOf(config) },
		ConfigFile:  o.config,
		Namespace:   o.namespace,
		Image:       o.image,
		OpenShift:   openShift,
		KubeletRoot: o.kubeletRoot,
		Event:       events.tell,
		Registry:    ctrlmetrics.Registry,
		Clock:       clock.RealClock{},
		Version:     version,
		Inertia:     o.inertia,
	})
	ctrlmetrics.Registry.MustRegister(buildInfo())
	err = errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("configuration", func(*http.Request) error { return op.Configured() }),
		mgr.Add(everywhere(op.Follow)),
		mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { op.Run(ctx); return nil })),
	)
	if err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return err
	}
	events.end()
	klog.InfoS("Ended")
	return nil
}

// validate finds what would fail later, after the first writes.
func (o *runOptions) validate() error {
	var errs []error
	if o.config == "" {
		errs = append(errs, errors.New("--config: is empty, must be a path"))
	}
	if !path.IsAbs(o.kubeletRoot) {
		errs = append(errs, fmt.Errorf("--kubelet-root: %q must be an absolute path", o.kubeletRoot))
	}
	if o.inertia < 0 {
		errs = append(errs, fmt.Errorf("--degraded-inertia: %s must not be negative", o.inertia))
	}
	for _, why := range validation.IsDNS1123Label(o.namespace) {
		errs = append(errs, fmt.Errorf("--namespace: %q: %s", o.namespace, why))
	}
	for flag, address := range map[string]string{"metrics": o.metrics, "health": o.health} {
		if _, _, err := net.SplitHostPort(address); address != "0" && err != nil {
			errs = append(errs, fmt.Errorf("--%s-bind-address: %w; must be a host and a port, as in :8443, or 0", flag, err))
		}
	}
	if o.metricsCerts != "" && o.metrics != "0" {
		if _, err := os.Stat(o.metricsCerts); err != nil {
			errs = append(errs, fmt.Errorf("--metrics-cert-dir: %w", err))
		}
	}
	return errors.Join(errs...)
}

// everywhere runs on every replica.
type everywhere func(context.Context)

// Start is the manager's.
func (e everywhere) Start(ctx context.Context) error { e(ctx); return nil }

// NeedLeaderElection is the manager's.
func (e everywhere) NeedLeaderElection() bool { return false }

func parseOpenShift(value string) (*bool, error) {
	if value == "" {
		return nil, nil
	}
	is, err := strconv.ParseBool(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %q must be true or false", openShiftVariable, value)
	}
	return &is, nil
}

func (o *runOptions) restConfig() (*rest.Config, error) {
	var config *rest.Config
	var err error
	if o.kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	} else {
		config, err = rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			err = errors.New("this is no pod of a cluster: name a kubeconfig by --kubeconfig or KUBECONFIG")
		}
	}
	if err != nil {
		return nil, err
	}
	config.UserAgent = "kms-health-operator/" + version
	// Writes are few; what would be slowed down is a start with many targets.
	config.QPS, config.Burst = 20, 40
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return atOnce{next} })
	return config, nil
}

// atOnce hands an answer of 503 to whoever asked. With Retry-After, client-go would
// keep it, and try again in its own time: an API server that starts asks for 5 s
// before it serves a custom resource, which it does sooner. What lists and watches
// has a backoff of its own.
type atOnce struct{ next http.RoundTripper }

// RoundTrip is http.RoundTripper's.
func (a atOnce) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := a.next.RoundTrip(request)
	if err == nil && answer.StatusCode == http.StatusServiceUnavailable && request.Method == http.MethodGet {
		answer.Header.Del("Retry-After")
	}
	return answer, err
}

// caOf is read each time: the file is replaced when the CA is rotated.
func caOf(config *rest.Config) ([]byte, error) {
	if len(config.CAData) > 0 || config.CAFile == "" {
		return config.CAData, nil
	}
	return os.ReadFile(config.CAFile)
}

// lock is the lease in the pod's own name, where that is told. A container that was
// killed could not give the lease back; the next one in the same pod, and there is only
// ever one, takes it up at once, in place of waiting it out.
//
// A request for it is given up after 10 seconds. By default that is half the time in
// which the lease must be renewed, minutes: one that hangs, on a connection to an API
// server that is about to end, would use them up, and the lease with them.
func (o *runOptions) lock(config *rest.Config) (resourcelock.Interface, error) {
	if !o.leaderElect {
		return nil, nil
	}
	identity := o.pod
	if identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, err
		}
		identity = host + "_" + string(uuid.NewUUID())
	}
	const twiceTheTimeout = 20 * time.Second
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, o.namespace, leaseName,
		resourcelock.ResourceLockConfig{Identity: identity}, config, twiceTheTimeout)
	return patientLock{lock}, err
}

// patientLock waits for an API server that is away. Leader election would come back
// after its retry period, up to two minutes, though the API server and what the
// operator has to say of its plugins may be there after a second.
type patientLock struct{ resourcelock.Interface }

// Get is resourcelock.Interface's.
func (l patientLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	for told := false; ; told = true {
		record, raw, err := l.Interface.Get(ctx)
		if err == nil || !away(err) {
			return record, raw, err
		}
		if !told {
			klog.ErrorS(err, "The API server cannot be asked for the lease; it is asked every second")
		}
		select {
		case <-ctx.Done():
			return nil, nil, err
		case <-time.After(time.Second):
		}
	}
}

// away says whether nobody answered, or somebody who is about to start or to end. What
// an API server refuses is not waited for.
func away(err error) bool {
	status := apierrors.APIStatus(nil)
	return !errors.As(err, &status) || apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) ||
		apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
}

// OpenShift's recommended leases: they ride out 60 s without an API server, and a
// longer time where there is only one.
func (o *runOptions) manager(config *rest.Config, settings func() *tls.Config) (manager.Manager, error) {
	lease, renew, retry := 137*time.Second, 107*time.Second, 26*time.Second
	if o.singleReplica {
		lease, renew, retry = 270*time.Second, 240*time.Second, 60*time.Second
	}
	lock, err := o.lock(config)
	if err != nil {
		return nil, err
	}
	grace := 10 * time.Second
	return manager.New(config, manager.Options{
		Logger:                              klog.Background().V(1),
		LeaderElection:                      o.leaderElect,
		LeaderElectionID:                    leaseName,
		LeaderElectionNamespace:             o.namespace,
		LeaderElectionReleaseOnCancel:       true,
		LeaderElectionResourceLockInterface: lock,
		LeaseDuration:                       &lease,
		RenewDeadline:                       &renew,
		RetryPeriod:                         &retry,
		GracefulShutdownTimeout:             &grace,
		HealthProbeBindAddress:              o.health,
		Metrics: metricsserver.Options{
			BindAddress:    o.metrics,
			SecureServing:  true,
			CertDir:        o.metricsCerts,
			FilterProvider: onlyAllowed,
			TLSOpts: []func(*tls.Config){func(c *tls.Config) {
				c.NextProtos = []string{"http/1.1"}
				c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
					now := settings()
					// The server sets this after it has asked for these options.
					if get := c.GetCertificate; get != nil {
						now.GetCertificate = get
					} else {
						now.Certificates = c.Certificates
					}
					now.NextProtos = c.NextProtos
					return now, nil
				}
			}},
		},
	})
}
