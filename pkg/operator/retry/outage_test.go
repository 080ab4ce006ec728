package retry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

var (
	leases       = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	errRefused   = errors.New("dial tcp 127.0.0.1:6443: connect: connection errRefused")
	errForbidden = apierrors.NewForbidden(leases, "x", errors.New("no"))
)

func TestEachChangeIsLoggedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		outcomes []error
		want     []string
	}{
		"no failure": {[]error{nil, nil}, nil},
		"away": {
			[]error{nil, errRefused, errors.New("EOF"), apierrors.NewServiceUnavailable("starting"), errRefused},
			[]string{"fail"},
		},
		"away and back":  {[]error{errRefused, errRefused, nil, nil}, []string{"fail", "succeed again"}},
		"another reason": {[]error{errRefused, errForbidden, errForbidden, nil}, []string{"fail", "fail", "succeed again"}},
		"an object's answer": {
			[]error{
				apierrors.NewNotFound(leases, "x"), apierrors.NewConflict(leases, "x", errors.New("c")),
				apierrors.NewAlreadyExists(leases, "x"),
			},
			nil,
		},
		"cancelled": {
			[]error{fmt.Errorf("get: %w", context.Canceled), errRefused, context.Canceled, errRefused}, []string{"fail"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			before := klog.CaptureState()
			defer before.Restore()
			klog.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&out))))
			log := NewOutageLog("of the test")
			for _, err := range c.outcomes {
				log.Observe(err)
			}
			lines := slices.DeleteFunc(strings.Split(out.String(), "\n"), func(l string) bool { return l == "" })
			if len(lines) != len(c.want) {
				t.Fatalf("got %q, want %q", lines, c.want)
			}
			for i, want := range c.want {
				if !strings.Contains(lines[i], "Requests to the API server "+want) ||
					!strings.Contains(lines[i], `requests="of the test"`) {
					t.Errorf("got %q, want %q", lines[i], want)
				}
			}
		})
	}
}

func TestAwayIsWhatMayEndByItself(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, errRefused: true, context.DeadlineExceeded: true,
		apierrors.NewServiceUnavailable("x"): true, apierrors.NewInternalError(errRefused): true,
		apierrors.NewTooManyRequests("x", 1): true,
		apierrors.NewTimeoutError("x", 1):    true, apierrors.NewServerTimeout(leases, "get", 1): true,
		errForbidden: false, apierrors.NewNotFound(leases, "x"): false, apierrors.NewUnauthorized("x"): false,
	} {
		if got := Away(err); got != want {
			t.Errorf("%v: %t, want %t", err, got, want)
		}
	}
}
