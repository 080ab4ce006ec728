package serve

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const waitLimit = time.Minute

func newServer() *Server {
	return &Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
}

// run serves by a configuration, until the function that it returns is called or the test ends.
func run(t *testing.T, s *Server, config *v1alpha1.Serving) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Serve(ctx, config)
	}()
	t.Cleanup(func() { <-ended })
	return cancel
}

// awaitOpen waits until an address accepts connections.
func awaitOpen(t *testing.T, address string) {
	t.Helper()
	await(t, address+" is open", func() bool { return isOpen(address) })
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLimit); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

func isOpen(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

func get(t *testing.T, url string, config *tls.Config) (*http.Response, error) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: waitLimit}
	response, err := client.Get(url)
	if err == nil {
		_ = response.Body.Close()
	}
	return response, err
}

func TestServesOnTheAddressOfTheLatestConfiguration(t *testing.T) {
	first, second := controlplane.FreeAddress(t), controlplane.FreeAddress(t)
	s, stop := newServer(), func() {}
	for _, address := range []string{first, second, first} {
		stop()
		stop = run(t, s, &v1alpha1.Serving{Address: address})
		awaitOpen(t, address)
		if r, err := get(t, "http://"+address+"/readyz", nil); err != nil || r.StatusCode != http.StatusOK {
			t.Fatal(r, err)
		}
	}
	await(t, "the earlier address is closed", func() bool { return !isOpen(second) })
	stop()
	await(t, "the server is off", func() bool { return !isOpen(first) })
}

func TestPortInUseIsTriedAgain(t *testing.T) {
	t.Parallel() // it waits
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	address := taken.Addr().String()
	run(t, newServer(), &v1alpha1.Serving{Address: address})
	time.Sleep(100 * time.Millisecond) // the first try has failed by then
	must.Succeed(t, taken.Close())
	awaitOpen(t, address)
}
