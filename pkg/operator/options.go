package operator

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kms-health/kms-health/pkg/filewatch"
)

// Options of the process. All fields but those that are marked so are required.
type Options struct {
	ConfigFile  string
	Kubeconfig  string // empty: the pod's own ServiceAccount
	Namespace   string // the operator's own
	Pod         string // the pod's name, which holds the lease; may be empty
	Image       string // the reporter's, where the configuration has none; may be empty
	KubeletRoot string // the kubelets' directory on the nodes
	OpenShift   *bool  // whether this is OpenShift; nil: look

	LeaderElect   bool
	SingleReplica bool
	KeepCA        bool // in the operator's own Deployment

	MetricsAddress string // "0": none
	MetricsCertDir string // empty: a self-signed certificate
	HealthAddress  string // "0": none

	// DegradedInertia is how long something must be bad before the ClusterOperator is
	// Degraded, at least 0.
	DegradedInertia time.Duration
	Version         string // what the ClusterOperator reports
}

// none is an address that is not opened.
const none = "0"

// Validate returns an error with every error, each with the name of its flag. Addresses and files show
// whether they are valid when they are opened, at the start.
func (o *Options) Validate() error {
	var all []error
	wrong := func(flag, format string, args ...any) {
		all = append(all, fmt.Errorf("--"+flag+": "+format, args...))
	}
	if o.ConfigFile == "" || o.ConfigFile == filewatch.Stdin {
		wrong("config", "%q must be the path of a file, which the operator follows", o.ConfigFile)
	}
	for _, why := range validation.IsDNS1123Label(o.Namespace) {
		wrong("namespace", "%q: %s", o.Namespace, why)
	}
	if !path.IsAbs(o.KubeletRoot) {
		wrong("kubelet-root", "%q must be an absolute path", o.KubeletRoot)
	}
	if o.Kubeconfig != "" {
		if _, err := clientcmd.LoadFromFile(o.Kubeconfig); err != nil {
			wrong("kubeconfig", "%w", err)
		}
	}
	if o.DegradedInertia < 0 {
		wrong("degraded-inertia", "%s must not be negative", o.DegradedInertia)
	}
	return errors.Join(all...)
}

// IsOpenShift returns what the environment variable IS_OPENSHIFT has; nil: it is not set.
func IsOpenShift() (*bool, error) {
	value := os.Getenv("IS_OPENSHIFT")
	if value == "" {
		return nil, nil
	}
	is, err := strconv.ParseBool(value)
	if err != nil {
		return nil, fmt.Errorf("IS_OPENSHIFT: %q must be true or false", value)
	}
	return &is, nil
}
