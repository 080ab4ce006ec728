package informers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

func TestTheDeliveryIsWokenWhenNodesCannotBeRead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/nodes" {
			<-r.Context().Done()
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client, woken := dynamic.NewForConfigOrDie(&rest.Config{Host: server.URL}), make(signal, 1)
	c := NewCluster(ctx, ClusterOptions{Client: client, Resources: client, Reporters: woken, Health: &wakes{}})
	if woken.await(t); !apierrors.IsForbidden(c.Nodes.Err()) {
		t.Errorf("woken by %v", c.Nodes.Err())
	}
}

func TestOfANodeIsKeptWhetherItIsReady(t *testing.T) {
	at := func(conditions any) Node {
		return readNode(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "a"}, "status": map[string]any{"conditions": conditions},
		}})
	}
	ready := func(status string, minute int) any {
		return []any{map[string]any{"type": "MemoryPressure", "status": "True"}, map[string]any{"type": "Ready",
			"status": status, "lastHeartbeatTime": fmt.Sprintf("2026-05-08T11:%02d:00Z", minute)}}
	}
	if n := at(ready("True", 1)); !n.Ready || !reflect.DeepEqual(n, at(ready("True", 2))) {
		t.Errorf("a heartbeat would wake controllers: %+v", n)
	}
	for name, conditions := range map[string]any{
		"not Ready": ready("False", 1), "the kubelet does not report": ready("Unknown", 1), "no condition yet": nil,
		"something else": "True", "something else in the list": []any{"Ready", map[string]any{}, nil},
	} {
		if at(conditions).Ready {
			t.Errorf("%s: Ready", name)
		}
	}
}

// A list by version 0 comes whole, from an API server's cache, whatever its limit is. All other ones expire where a
// compaction follows the first page: then a whole one is asked for.
func TestNodesAreListedInPages(t *testing.T) {
	const nodes = 2*pageSize + 1
	for name, most := range map[string]int{"in pages": pageSize, "a page has expired": nodes} {
		t.Run(name, func(t *testing.T) {
			largest := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				query := r.URL.Query()
				switch {
				case r.URL.Path != "/api/v1/nodes":
					http.NotFound(w, r)
					return
				case query.Get("watch") != "":
					<-r.Context().Done()
					return
				}
				w.Header().Set("Content-Type", "application/json")
				from, _ := strconv.Atoi(query.Get("continue"))
				limit, _ := strconv.Atoi(query.Get("limit"))
				if limit == 0 || query.Get("resourceVersion") == "0" {
					limit = nodes
				}
				if from > 0 && most == nodes {
					expired := apierrors.NewResourceExpired("compacted").ErrStatus
					expired.APIVersion, expired.Kind = "v1", "Status"
					w.WriteHeader(http.StatusGone)
					_ = json.NewEncoder(w).Encode(expired)
					return
				}
				list := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
				list.APIVersion, list.Kind = "v1", "NodeList"
				for i := from; i < min(from+limit, nodes); i++ {
					list.Items = append(list.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Labels: map[string]string{"x": "y"}},
						Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
				}
				if from+limit < nodes {
					list.Continue = fmt.Sprint(from + limit)
				}
				largest = max(largest, len(list.Items))
				_ = json.NewEncoder(w).Encode(list)
			}))
			t.Cleanup(server.Close)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			client, woken := dynamic.NewForConfigOrDie(&rest.Config{Host: server.URL}), make(signal, 1)
			c := NewCluster(ctx, ClusterOptions{Client: client, Resources: client, Reporters: woken, Health: &wakes{}})
			for !c.Nodes.HasSynced() {
				woken.await(t)
			}
			for _, n := range c.Nodes.List() {
				if !n.Ready || n.Labels["x"] != "y" {
					t.Errorf("of a Node is kept: %+v", n)
				}
			}
			if n := len(c.Nodes.List()); n != nodes || largest != most {
				t.Errorf("%d Nodes, want %d; %d in one answer, want %d", n, nodes, largest, most)
			}
		})
	}
}

// signal is a queue that has room for one key.
type signal chan string

// Enqueue is Queue's.
func (s signal) Enqueue(name string) {
	select {
	case s <- name:
	default:
	}
}

func (s signal) await(t *testing.T) {
	t.Helper()
	select {
	case <-s:
	case <-time.After(time.Minute):
		t.Fatal("not woken within a minute")
	}
}
