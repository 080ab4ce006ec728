package reportercontroller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// On OpenShift a node resolves the load balancer's name but no Service. While CoreDNS is down, a pod resolves neither.
func TestClusterServerIsOneThatTheReportersNetworkResolves(t *testing.T) {
	const balancer, service = "https://api-int.example.com:6443", "https://172.30.0.1:443"
	for name, tt := range map[string]struct {
		openShift          bool
		server, ofOperator string
		want               string
	}{
		"a node of OpenShift's":    {true, v1alpha1.DefaultLocalServer, service, balancer},
		"a pod of OpenShift's":     {true, v1alpha1.DefaultClusterServer, service, service},
		"a node":                   {false, v1alpha1.DefaultLocalServer, service, service},
		"a pod":                    {false, v1alpha1.DefaultClusterServer, service, service},
		"the operator on the node": {false, v1alpha1.DefaultClusterServer, "https://127.0.0.1:6443", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			infrastructure := object("config.openshift.io/v1", "Infrastructure", "", informers.ClusterName)
			infrastructure.SetResourceVersion("1")
			informer := informers.New(newClient(infrastructure),
				informers.Selection{Resource: informers.Infrastructures, Name: informers.ClusterName},
				func(*unstructured.Unstructured) string { return balancer })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go informer.Run(ctx)
			synctest.Wait()
			c := &Controller{Options: Options{OpenShift: tt.openShift, Server: tt.ofOperator},
				cluster: &informers.Cluster{Infrastructure: informer}}
			got := c.clusterServer(&v1alpha1.APIServer{Connection: v1alpha1.Connection{Server: tt.server}})
			if got != tt.want {
				t.Errorf("%s: %q, want %q", name, got, tt.want)
			}
		})
	}
}

// A reporter without the CA could not write. A rotated CA is read at each sync.
func TestTheLastCAThatCouldBeReadIsUsed(t *testing.T) {
	failed := errors.New("no such file")
	for name, tt := range map[string]struct {
		reads []any // of one sync each: a CA, or an error
		want  string
		known bool
	}{
		"never read":          {[]any{failed}, "", false},
		"not read any more":   {[]any{"a", failed}, "a", true},
		"rotated":             {[]any{"a", "b"}, "b", true},
		"none is needed":      {[]any{""}, "", true},
		"read after a moment": {[]any{failed, "a"}, "a", true},
	} {
		e, s, known := &serverState{}, &Snapshot{}, false
		for _, read := range tt.reads {
			ca, _ := read.(string)
			err, _ := read.(error)
			c := &Controller{Options: Options{CA: func() ([]byte, error) { return []byte(ca), err }}}
			s = &Snapshot{}
			known = c.readCA(s, e)
		}
		problem := tt.reads[len(tt.reads)-1] == any(failed)
		if string(s.CA) != tt.want || known != tt.known || s.has(contract.SourceUnreadable) != problem {
			t.Errorf("%s: %q, known %t, %+v", name, s.CA, known, s.SourceProblems)
		}
	}
}

// Each text is the annotation's value at a sync; empty: no annotation.
func TestAnInvalidRequestIsIgnoredWithOneEvent(t *testing.T) {
	const noResource = "none"
	long := strings.Repeat("a", 64)
	for name, tt := range map[string]struct {
		texts  []string
		want   string // what the last sync requests
		events int
	}{
		"no annotation":              {[]string{"", ""}, "", 0},
		"a request":                  {[]string{"r1", "r1"}, "r1", 0},
		"no resource any more":       {[]string{"r1", noResource}, "", 0},
		"another one":                {[]string{"r1", "R-2_b.c"}, "R-2_b.c", 0},
		"deleted":                    {[]string{"r1", ""}, "", 0},
		"an invalid one":             {[]string{"two words", "two words", "two words"}, "", 1},
		"two invalid ones":           {[]string{"two words", long, long}, "", 2},
		"invalid after a valid one":  {[]string{"r1", "\x1b[31m"}, "", 1},
		"a valid one after that":     {[]string{"\x1b[31m", "r1"}, "r1", 1},
		"invalid, deleted, and anew": {[]string{"?", "", "?"}, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			var events []string
			c := &Controller{Options: Options{Event: func(target, eventType, reason, message string) {
				events = append(events, strings.Join([]string{target, eventType, reason, message}, " "))
			}}}
			var s *Snapshot
			e := &serverState{}
			for _, text := range tt.texts {
				s = fixture(t, v1alpha1.ModeCompanionPod)
				if s.Resource = (&operatorstatus.Status{Requested: text}); text == noResource {
					s.Resource = nil
				}
				c.readRequest(s, e)
			}
			if s.Requested != tt.want || len(events) != tt.events {
				t.Errorf("requested %q, want %q; %d Events, want %d: %q", s.Requested, tt.want, len(events), tt.events, events)
			}
			for _, event := range events {
				if !strings.HasPrefix(event, "api Warning "+contract.EventRequestInvalid) || strings.ContainsRune(event, '\x1b') ||
					strings.Contains(event, long) {
					t.Error(event)
				}
			}
		})
	}
}
