//go:build integration

package identity

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/test/harness/must"
)

// Content types of a PATCH.
const (
	applyType = "application/apply-patch+yaml"
	mergeType = "application/merge-patch+json"
	jsonType  = "application/json-patch+json"

	strategicType = "application/strategic-merge-patch+json"
)

// request is an API request.
type request struct{ method, path, contentType, body string }

// dry returns the request as a dry run. A read is one anyway.
func (r request) dry() request {
	switch {
	case r.method == http.MethodGet:
	case strings.Contains(r.path, "?"):
		r.path += "&dryRun=All"
	default:
		r.path += "?dryRun=All"
	}
	return r
}

// answer is the response to a request. message is the message of a Status. It is empty if the response is an object.
type answer struct {
	code    int
	message string
	object  map[string]any
}

// caller is a user with a credential.
type caller struct {
	name   string
	url    string
	client *http.Client
}

func newCaller(t *testing.T, name string, config *rest.Config) *caller {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	must.Succeed(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return &caller{name: name, url: config.Host, client: client}
}

func asAdmin(t *testing.T) *caller {
	t.Helper()
	return newCaller(t, "administrator", cluster.RESTConfig())
}

func (who *caller) do(t *testing.T, r request) answer {
	t.Helper()
	call, err := http.NewRequestWithContext(soon(t), r.method, who.url+r.path, strings.NewReader(r.body))
	must.Succeed(t, err)
	call.Header.Set("Content-Type", r.contentType)
	if r.contentType == "" {
		call.Header.Set("Content-Type", "application/json")
	}
	response, err := who.client.Do(call)
	if err != nil {
		t.Fatalf("%s: %s %s: %v", who.name, r.method, r.path, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	got := answer{code: response.StatusCode}
	if err := json.Unmarshal(body, &got.object); err != nil {
		got.message = string(body)
	} else if got.object["kind"] == "Status" {
		got.message = fmt.Sprint(got.object["message"])
	}
	return got
}

// outcome returns the code, or the component that denied the request.
func (a answer) outcome() string {
	switch layer := a.layer(); {
	case a.code != http.StatusForbidden:
		return fmt.Sprint(a.code)
	case layer == reportsPolicy || layer == statusPolicy:
		return byPolicy
	}
	return byRBAC
}

// tried returns an error unless a request has this outcome.
func (who *caller) tried(t *testing.T, r request, want string) error {
	t.Helper()
	if got := who.do(t, r); got.outcome() != want {
		return fmt.Errorf("%s: %s, want %s: %.300s", who.name, got.outcome(), want, got.message)
	}
	return nil
}

// expect reports an error unless a request has this outcome.
func (who *caller) expect(t *testing.T, what string, r request, want string) {
	t.Helper()
	if err := who.tried(t, r, want); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func expand(format, namespace string) string {
	if !strings.Contains(format, "%s") {
		return format
	}
	return fmt.Sprintf(format, namespace)
}
