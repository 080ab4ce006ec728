package reportercontroller

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

// The record is written before and after the refused object. Each of these writes enqueues all targets, but must not
// shorten the backoff.
func TestWhatIsForbiddenIsReportedAndTriedWithABackoff(t *testing.T) {
	for _, resource := range []string{"roles", "clusterroles"} {
		r := &requests{}
		client := r.client(nil)
		client.PrependReactor("patch", resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.all = append(r.all, "denied")
			return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "x", errors.New("no right"))
		})
		r.run(t, client, oneTarget) // for 10 minutes
		denied, reported := 0, 0
		for _, request := range r.all {
			if request == "denied" {
				denied++
			}
			if strings.HasPrefix(request, "status Forbidden") {
				reported++
			}
		}
		if denied < 10 || denied > 100 || reported == 0 {
			t.Errorf("%s: refused %d times, %d statuses", resource, denied, reported)
		}
	}
}
