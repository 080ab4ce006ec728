package source

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/doctor"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

// Live reads a cluster for the doctor.
type Live struct {
	*Cluster
	// away is the first problem of an API server that does not answer: the others are not
	// waited for.
	away error
}

// page is how many objects are listed at once.
const page = 500

// Targets reads the operator resources, and KMSHealths.
func (l *Live) Targets(ctx context.Context, wanted func(string) bool) (found []view.Target, unread []*doctor.Unread) {
	for _, target := range contract.ResourceNames() {
		if !wanted(target) {
			continue
		}
		r := contract.ResourceNamed(target)
		o, err := l.Get(ctx, r.GVR(), "", r.Name)
		var u *doctor.Unread
		switch {
		case errors.As(err, &u):
			unread = append(unread, u)
		case o != nil:
			found = append(found, view.Read(target, o))
		}
	}
	if l.away != nil || !wanted(contract.KMSHealths.Plural) {
		return found, unread
	}
	own, err := l.listKMSHealths(ctx, len(found) > 0)
	var u *doctor.Unread
	if errors.As(l.unread("list", contract.KMSHealths.GVR(), "", err), &u) {
		unread = append(unread, u)
		l.away = nil // KMSHealths may be encrypted with a plugin that fails: the others can be read
	}
	own = slices.DeleteFunc(own, func(t view.Target) bool { return !wanted(t.Name) })
	if len(found) == 0 && len(own) > 0 { // as on plain Kubernetes: no right to what does not exist
		unread = nil
	}
	return append(found, own...), unread
}

// Unreachable is the problem of an API server that does not answer; nil: it answers.
func (l *Live) Unreachable() error { return l.away }

// Get returns an object; nil: it does not exist.
func (l *Live) Get(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) (o *unstructured.Unstructured, err error) {
	if l.away == nil {
		o, err = l.client.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
	}
	if failed := l.unread("get", resource, namespace, err); failed != nil {
		return nil, failed
	}
	return o, nil
}

// List returns the objects of a namespace.
func (l *Live) List(ctx context.Context, resource schema.GroupVersionResource, namespace string) (all []*unstructured.Unstructured, err error) {
	options := metav1.ListOptions{Limit: page}
	for l.away == nil {
		var some *unstructured.UnstructuredList
		some, err = l.client.Resource(resource).Namespace(namespace).List(ctx, options)
		if err != nil {
			break
		}
		for i := range some.Items {
			all = append(all, &some.Items[i])
		}
		if options.Continue = some.GetContinue(); options.Continue == "" {
			return all, nil
		}
	}
	return all, l.unread("list", resource, namespace, err)
}

// unread is an *Unread for an error of a request; nil for none.
func (l *Live) unread(verb string, resource schema.GroupVersionResource, namespace string, err error) error {
	if l.away == nil && err == nil {
		return nil
	}
	u := &doctor.Unread{Why: doctor.Failed, Verb: verb, Resource: resource.Resource, Namespace: namespace}
	switch {
	case l.away != nil:
		u.Message = l.away.Error()
	case apierrors.IsForbidden(err):
		u.Why, u.Message = doctor.Forbidden, err.Error()
	default:
		problem := l.explain([]string{resource.Resource}, verb, err)
		if u.Message, _, _ = strings.Cut(problem.Error(), "\n"); problem.Unreachable || apierrors.IsUnauthorized(err) {
			l.away = problem
		}
	}
	return u
}

// Bounds on the metrics of an API server, which are some megabytes, and on the part of them
// that is kept.
const (
	maxMetrics     = 256 << 20
	maxKMSMetrics  = 4 << 20
	maxMetricsLine = 64 << 10
)

// Metrics returns the lines about KMS of the metrics of the API server that answers.
func (l *Live) Metrics(ctx context.Context) ([]byte, error) {
	if l.away != nil {
		return nil, l.unread("get", doctor.KMSMetrics, "", nil)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.metrics, http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	answer, err := l.http.Do(request)
	unread := &doctor.Unread{Why: doctor.Failed, Verb: "get", Resource: doctor.KMSMetrics.Resource}
	if err != nil {
		unread.Message = err.Error()
		return nil, unread
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		if unread.Message = answer.Status; answer.StatusCode == http.StatusForbidden || answer.StatusCode == http.StatusUnauthorized {
			unread.Why = doctor.Forbidden
		}
		return nil, unread
	}
	lines, err := aboutKMS(io.LimitReader(answer.Body, maxMetrics))
	if err != nil {
		unread.Message = err.Error()
		return nil, unread
	}
	return lines, nil
}

// aboutKMS keeps the lines about KMS.
func aboutKMS(from io.Reader) ([]byte, error) {
	kept := []byte{}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxMetricsLine)
	for lines.Scan() {
		line := lines.Bytes()
		if !bytes.HasPrefix(line, []byte(doctor.MetricsPrefix)) && !bytes.HasPrefix(line, []byte("# TYPE "+doctor.MetricsPrefix)) {
			continue
		}
		if len(kept)+len(line) > maxKMSMetrics {
			return nil, fmt.Errorf("over %d MiB of metrics about KMS", maxKMSMetrics>>20)
		}
		kept = append(append(kept, line...), '\n')
	}
	return kept, lines.Err()
}
