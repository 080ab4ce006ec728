//go:build integration

package operator

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/operatorcr"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// conditionsSeen are the statuses and reasons that a resource's conditions have had.
type conditionsSeen struct {
	mu  sync.Mutex
	all map[string]string // "type status reason": a message
}

// recordConditions records those of this project on an operator resource, until the
// test ends.
func recordConditions(t *testing.T, server apiservers.Server) *conditionsSeen {
	t.Helper()
	s := &conditionsSeen{all: map[string]string{}}
	watchResource(t, server, func(_ time.Time, r *operatorcr.Status) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range r.Conditions {
			s.all[c.Type+" "+c.Status+" "+c.Reason] = c.Message
		}
	})
	return s
}

// with are those whose text contains all texts.
func (s *conditionsSeen) with(words ...string) (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for text, message := range s.all {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
			found = append(found, text+": "+message)
		}
	}
	slices.Sort(found)
	return found
}

// never fails the test if check finds something wrong within a while.
func never(t *testing.T, while time.Duration, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(while); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err := check(); err != nil {
			t.Fatal(err)
		}
	}
}

// serveMetrics makes the operator serve its metrics from its next start on, and returns
// a function that reads the samples of one of them: their values, by their labels.
func (op *operatorProcess) serveMetrics() func(name string) map[string]string {
	op.t.Helper()
	address := freeAddress(op.t)
	op.more = append(op.more, "--metrics-bind-address", address)
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	return func(name string) map[string]string {
		request, err := http.NewRequestWithContext(op.t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
		if err != nil {
			op.t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+cluster.RESTConfig().BearerToken)
		response, err := client.Do(request)
		if err != nil {
			return nil // it is not served yet
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return nil
		}
		samples := map[string]string{}
		for line := range strings.Lines(string(body)) {
			if labels, ok := strings.CutPrefix(line, name+"{"); ok {
				labels, value, _ := strings.Cut(labels, "} ")
				samples[labels] = strings.TrimSpace(value)
			}
		}
		return samples
	}
}

// awaitSample waits for a sample with these labels, each of the form name="value", and
// this value.
func awaitSample(t *testing.T, metric func(string) map[string]string, name, value string, labels ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s%v is %s", name, labels, value), func() error {
		samples := metric(name)
		for have, is := range samples {
			if is == value && !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(have, l) }) {
				return nil
			}
		}
		return fmt.Errorf("%v", samples)
	})
}

// awaitWarning waits for a Warning event of a reason, after a time, with a text in it.
func awaitWarning(t *testing.T, reason string, since time.Time, text string) {
	t.Helper()
	eventually(t, "a Warning event "+reason, func() error {
		events, err := kube.CoreV1().Events(operatorNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var others []string
		for _, e := range events.Items {
			if e.CreationTimestamp.Time.Before(since.Truncate(time.Second)) {
				continue
			}
			if e.Reason == reason && e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, text) {
				return nil
			}
			others = append(others, e.Type+" "+e.Reason)
		}
		return fmt.Errorf("there are %v", others)
	})
}

// awaitReason waits until a delivery has a reason, and returns its message.
func awaitReason(t *testing.T, server apiservers.Server, reasons ...string) (message string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the reason of %s is one of %v", server.Resource, reasons), func() error {
		status, reason, text := condition(t.Context(), server.Resource)
		if !slices.Contains(reasons, reason) {
			return fmt.Errorf("%s %s: %s", status, reason, text)
		}
		message = text
		return nil
	})
	return message
}
