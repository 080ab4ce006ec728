//go:build e2e

package e2e

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// The manifest is moved away and back, as administrators restart a static pod. The pod has the same UID but new volumes
// after it. The kubelet keeps the companion, which mounts the former volumes.
func testManifestMovedAwayAndBack(h *scenario) {
	n := h.node()
	uid, err := objects.PodUID(h.apiServerPod(n))
	h.must(err)
	moved := time.Now()
	h.must(n.MoveManifest(false))
	h.await(waitLimit, "the pod's volumes are removed", func() error {
		_, err := os.Stat(n.Path("/var/lib/kubelet/pods/" + uid))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, errors.New("they are not"))
	})
	h.must(n.MoveManifest(true))
	h.must(n.AwaitAPIServer(h.ctx, "/readyz"))
	ready := time.Now()
	h.await(waitLimit, "a companion reports again", func() error {
		s, err := h.Now(h.ctx, apiservers.Kube)
		return errors.Join(err, s.Fresh(n.Name, ready.Add(interval)))
	})
	// The kubelet sees the new companion after 50 to 100 s.
	h.took("/readyz to a report of a companion", time.Since(ready), 4*time.Minute)
	h.awaitHealthy()
	h.noLongAlarm(moved)
	if again, err := objects.PodUID(h.apiServerPod(n)); err != nil || again != uid {
		h.t.Errorf("the pod's UID was %s, and is %s: %v", uid, again, err)
	}
}
