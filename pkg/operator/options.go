package operator

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kms-health/kms-health/pkg/filewatch"
)

// Options of the process. A field is required unless its comment says what an empty value means.
type Options struct {
	ConfigFile string
	Kubeconfig string // empty: the pod's own ServiceAccount
	Namespace  string // the operator's own
	Pod        string // the pod's name, the holder's identity in the lease; may be empty
	Image      string // the reporter's, used if the configuration has none; may be empty
	OpenShift  bool

	LeaderElect   bool
	SingleReplica bool
	KeepCA        bool // keep the API server's CA in the operator's own Deployment current

	MetricsAddress string // "0": none
	MetricsCertDir string // empty: a self-signed certificate
	HealthAddress  string // "0": none

	DegradedInertia time.Duration // how long a problem must last before the ClusterOperator is Degraded
	Version         string        // what the ClusterOperator reports
}

// none is the address of a server that is not started.
const none = "0"

// Validate returns all errors, each with the name of its flag. Addresses and certificate files are checked when they
// are opened.
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
	if o.Kubeconfig != "" {
		if _, err := clientcmd.LoadFromFile(o.Kubeconfig); err != nil {
			wrong("kubeconfig", "%w", err)
		}
	}
	return errors.Join(all...)
}

// IsOpenShift returns the value of the environment variable IS_OPENSHIFT, or otherwise if it is not set.
func IsOpenShift(otherwise bool) (bool, error) {
	value := cmp.Or(os.Getenv("IS_OPENSHIFT"), strconv.FormatBool(otherwise))
	is, err := strconv.ParseBool(value)
	if err != nil {
		return false, fmt.Errorf("IS_OPENSHIFT: %q must be true or false", value)
	}
	return is, nil
}
