package operator

import (
	"cmp"
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	typedauthenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	typedauthorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kms-health/kms-health/pkg/operator/ssa"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

func restConfig(kubeconfig, version string) (*rest.Config, error) {
	// After the first number of seconds without data a connection is pinged; after the second without an answer it is
	// closed. client-go has 30 and 15: if a node dies with its API server, reports would go unread that long.
	for name, seconds := range map[string]string{
		"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "10", "HTTP2_PING_TIMEOUT_SECONDS": "5",
	} {
		_ = os.Setenv(name, cmp.Or(os.Getenv(name), seconds)) // fails only for an invalid name
	}
	var config *rest.Config
	var err error
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	} else {
		config, err = rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			err = errors.New("this is not a pod of a cluster: name a kubeconfig by --kubeconfig or KUBECONFIG")
		}
	}
	if err != nil {
		return nil, err
	}
	config.UserAgent = "kms-health-operator/" + version
	// Writes are few; a lower limit would slow down a start with many targets.
	config.QPS, config.Burst = 20, 40
	// While a node starts, packets to the Service of the API server are dropped. A lost SYN is sent again after 1 s, 2 s
	// and 4 s, so a new connection is faster.
	config.Dial = (&net.Dialer{Timeout: 2 * time.Second}).DialContext
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return unretried{next} })
	return config, nil
}

// clients has one client per API group that the operator uses. A clientset would link all groups.
type clients struct {
	core           *typedcorev1.CoreV1Client
	apps           *typedappsv1.AppsV1Client
	authentication *typedauthenticationv1.AuthenticationV1Client
	authorization  *typedauthorizationv1.AuthorizationV1Client
	coordination   *typedcoordinationv1.CoordinationV1Client
}

// newClients returns clients that share their connections.
func newClients(config *rest.Config) (c clients, err error) {
	config = rest.CopyConfig(config)
	config.Timeout = ssa.RequestTimeout // a hanging request would delay later Events, or the lease's renewal
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return c, err
	}
	var problems [5]error
	c.core, problems[0] = typedcorev1.NewForConfigAndClient(config, shared)
	c.apps, problems[1] = typedappsv1.NewForConfigAndClient(config, shared)
	c.authentication, problems[2] = typedauthenticationv1.NewForConfigAndClient(config, shared)
	c.authorization, problems[3] = typedauthorizationv1.NewForConfigAndClient(config, shared)
	c.coordination, problems[4] = typedcoordinationv1.NewForConfigAndClient(config, shared)
	return c, errors.Join(problems[:]...)
}

// newDynamicClients returns a client for all objects, and one that decodes only what operatorstatus.Read needs.
func newDynamicClients(config *rest.Config) (client, resources dynamic.Interface, err error) {
	if client, err = dynamic.NewForConfig(config); err != nil {
		return nil, nil, err
	}
	config = dynamic.ConfigFor(config)
	config.NegotiatedSerializer = resourceSerializer{config.NegotiatedSerializer}
	lean, err := rest.UnversionedRESTClientFor(config)
	return client, dynamic.New(lean), err
}

type resourceSerializer struct{ runtime.NegotiatedSerializer }

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (s resourceSerializer) DecoderToVersion(d runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return operatorstatus.Decoder(s.NegotiatedSerializer.DecoderToVersion(d, version))
}

// unretried removes the header Retry-After from refused reads, so that the caller gets the reason at once, and
// retries with its own backoff. With that header client-go silently waits and repeats a request up to ten times: 5 s
// for a custom resource that is not served yet (503), 1 to 30 s for objects that cannot be decrypted (429).
type unretried struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (u unretried) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := u.next.RoundTrip(request)
	if err != nil || request.Method != http.MethodGet {
		return response, err
	}
	if code := response.StatusCode; code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests {
		response.Header.Del("Retry-After")
	}
	return response, nil
}

// WrappedRoundTripper lets client-go find the transport below.
func (u unretried) WrappedRoundTripper() http.RoundTripper { return u.next }

// caOf returns the CA bundle of the API server, as PEM. A file is read each time, since the CA is rotated.
func caOf(config *rest.Config) ([]byte, error) {
	if len(config.CAData) > 0 || config.CAFile == "" {
		return config.CAData, nil
	}
	return os.ReadFile(config.CAFile)
}
