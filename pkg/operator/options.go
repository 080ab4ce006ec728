package operator

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

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
	Version         string
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
	if o.ConfigFile == "" {
		wrong("config", "is empty, must be a path")
	}
	if o.ConfigFile == filewatch.Stdin {
		wrong("config", "is standard input, which validate and render read: a running operator follows a file")
	}
	for _, why := range validation.IsDNS1123Label(o.Namespace) {
		wrong("namespace", "%q: %s", o.Namespace, why)
	}
	if !path.IsAbs(o.KubeletRoot) {
		wrong("kubelet-root", "%q must be an absolute path", o.KubeletRoot)
	}
	if o.DegradedInertia < 0 {
		wrong("degraded-inertia", "%s must not be negative", o.DegradedInertia)
	}
	return errors.Join(all...)
}

// OpenShiftVariable is the environment variable that ParseOpenShift reads the value of.
const OpenShiftVariable = "IS_OPENSHIFT"

// ParseOpenShift returns whether this is OpenShift, nil for an empty value.
func ParseOpenShift(value string) (*bool, error) {
	if value == "" {
		return nil, nil
	}
	is, err := strconv.ParseBool(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %q must be true or false", OpenShiftVariable, value)
	}
	return &is, nil
}
