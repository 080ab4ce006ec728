package rollupcontroller

import (
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/rollup"
)

// lookAgain asks for a pass at an instant, if none is due before.
func (c *Controller) lookAgain(at time.Time) {
	if !at.IsZero() && at.Before(c.again) {
		c.again = at
	}
}

// waits says whether a write failed a moment ago.
func (c *Controller) waits(name string) bool {
	until, waiting := c.retries.Waiting(name)
	if waiting {
		c.lookAgain(until)
	}
	return waiting
}

// ended asks for another try of what failed, later each time, and logs what is
// new.
func (c *Controller) ended(name string, err error) {
	if err == nil {
		if c.retries.Done(name) {
			klog.InfoS("Rolls up again", "target", name)
		}
		return
	}
	c.metrics.errors.WithLabelValues(name).Inc()
	if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown { // no answer at all
		c.deaf[name] = c.Clock.Now().Add(afterOutage)
	}
	until, news := c.retries.Failed(name, err)
	if news {
		klog.ErrorS(err, "Could not be rolled up, and is tried again", "target", name)
	}
	c.lookAgain(until)
}

// outage says whether the API server is away, or was a moment ago.
func (c *Controller) outage(name string, err error, now time.Time) bool {
	if err != nil {
		c.deaf[name] = time.Time{} // its end wakes us
		return true
	}
	until, deaf := c.deaf[name]
	if !deaf {
		return false
	}
	if until.IsZero() {
		until = now.Add(afterOutage)
		c.deaf[name] = until
	}
	if !now.Before(until) {
		delete(c.deaf, name)
		return false
	}
	c.lookAgain(until)
	return true
}

// restsOnSilence says whether a verdict is another for what was not heard. A plugin
// that is known to be ill is told all the same.
func restsOnSilence(r *rollup.Result) bool {
	return r.Condition(rollup.Degraded).Status != rollup.True &&
		slices.ContainsFunc(r.Rows, func(row rollup.Row) bool { return row.State == rollup.Stale })
}
