//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
)

// A disconnected cluster: the kubelet pulls both images, by digest and with a pull secret,
// from a mirror. Then the mirror is stopped, and a new companion runs from what is on the
// node. Nothing is sent to anything but the mirror and the cluster's own networks.
func testDisconnected(t *testing.T) {
	h := newScenario(t, true)
	h.awaitHealthy(apiservers.All...)
	imagesBefore, err := h.node().Images(h.ctx)
	h.must(err)
	mirror, err := h.StartMirror(h.ctx)
	h.must(err)
	t.Cleanup(mirror.Stop)
	v, err := h.BuildForMirror(h.ctx, "disconnected", root, mirror)
	h.must(err)
	pushed := len(mirror.Requests())
	h.must(h.node().UseMirror(fixture.Registry))
	h.countTraffic()

	start := time.Now()
	h.must(h.Install(h.ctx, v, fixture.Configuration))
	h.awaitVersion(v)
	times.took("disconnected", "pulled from the mirror, all rolled and healthy", time.Since(start), noTime, "")
	h.servedImages(mirror.Requests()[pushed:], v)
	h.pulled(v, start)

	mirror.Stop()
	beforeStop := h.traffic()
	start = time.Now()
	companion := h.replaceCompanion(v)
	times.took("disconnected", "mirror stopped: companion deleted to the next one's report", time.Since(start), noTime, "")
	if message := h.lastPull(companion); !strings.Contains(message, "already present on machine") {
		t.Errorf("the new companion's image: %q, want it to be on the node", message)
	}
	h.noTrafficOutside()
	if was, is := packets(beforeStop, "mirror"), packets(h.traffic(), "mirror"); was == 0 || is != was {
		t.Errorf("%d packets to the mirror before it was stopped, %d after it: want some, and no more", was, is)
	}

	h.must(h.node().StopTraffic(h.ctx))
	h.must(h.Install(h.ctx, h.version, fixture.Configuration))
	h.awaitVersion(h.version)
	h.must(h.node().ForgetMirror(fixture.Registry))
	imagesAfter, err := h.node().Images(h.ctx)
	h.must(err)
	h.must(h.node().RemoveImages(h.ctx, slices.DeleteFunc(imagesAfter, func(name string) bool { return slices.Contains(imagesBefore, name) })...))
}

// countTraffic counts what the node and its pods send, once it has seen that each kind of
// packet to the outside is counted.
func (h *scenario) countTraffic() {
	h.t.Helper()
	h.must(h.node().CountTraffic(h.ctx))
	operator := h.process(operatorPods, operatorContainer)
	type dial func(context.Context, string, string) (net.Conn, error)
	for address, from := range map[string]dial{
		"127.0.0.1:53": h.node().Dial, "192.168.126.1:9": h.node().Dial, "203.0.113.1:9": h.node().Dial,
		"203.0.113.2:9": operator.Dial, "[2001:db8::1]:9": h.node().Dial,
	} {
		conn, err := from(h.ctx, "udp", address)
		if err != nil && strings.HasPrefix(address, "[") {
			h.t.Logf("the node has no way to %s: %v", address, err)
			continue
		}
		h.must(err)
		_, _ = conn.Write([]byte("?"))
		_ = conn.Close()
	}
	for _, c := range h.traffic() {
		if want := map[string]int{"name server of the node": 1, "gateway, other ports": 1, "anything else": 2}[c.To]; c.Packets < want {
			h.t.Fatalf("%d packets to %s are counted, want %d", c.Packets, c.To, want)
		}
	}
	h.must(h.node().RestartTraffic(h.ctx))
}

func (h *scenario) traffic() []cluster.Traffic {
	h.t.Helper()
	all, err := h.node().Traffic(h.ctx)
	h.must(err)
	return all
}

func packets(all []cluster.Traffic, to string) int {
	return all[slices.IndexFunc(all, func(c cluster.Traffic) bool { return c.To == to })].Packets
}

// packetTable is what the run prints at its end.
var packetTable string

// noTrafficOutside requires no packet to have been sent to the outside, and prints where
// they were sent to.
func (h *scenario) noTrafficOutside() {
	h.t.Helper()
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DESTINATION\tPACKETS\tALLOWED")
	for _, c := range h.traffic() {
		allowed := "any number"
		if c.Outside {
			allowed = "none"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\n", c.To, c.Packets, allowed)
		if c.Outside && c.Packets > 0 {
			h.t.Errorf("%d packets were sent to: %s", c.Packets, c.To)
		}
	}
	_ = w.Flush()
	packetTable = "packets from the node and its pods:\n" + out.String()
	h.t.Log(packetTable)
}

// servedImages requires the mirror to have served the manifest, the configuration and the
// layer of both images, and nothing without the password.
func (h *scenario) servedImages(requests []cluster.MirrorRequest, v *fixture.Version) {
	h.t.Helper()
	refused := 0
	served := map[string]int{}
	for _, r := range requests {
		switch {
		case r.Status == http.StatusUnauthorized:
			refused++
		case r.Status == http.StatusOK && r.Method == http.MethodGet:
			served[r.Path]++
		case r.Status != http.StatusOK:
			h.t.Errorf("%s %s: %d", r.Method, r.Path, r.Status)
		}
	}
	if refused == 0 {
		h.t.Error("no request without a password was refused")
	}
	for _, image := range []string{v.Operator, v.Reporter} {
		repository, digest, _ := strings.Cut(strings.TrimPrefix(image, fixture.Registry), "@")
		manifests, blobs := served["/v2"+repository+"/manifests/"+digest], 0
		for path, n := range served {
			if strings.HasPrefix(path, "/v2"+repository+"/blobs/") {
				blobs += n
			}
		}
		if manifests == 0 || blobs < 2 {
			h.t.Errorf("%s: the manifest was served %d times, and %d blobs, want a configuration and a layer", image, manifests, blobs)
		}
		h.t.Logf("mirror: %s: %d × manifest, %d blobs; %d requests without a password were refused", image, manifests, blobs, refused)
	}
}

// pulled requires the kubelet to have pulled each image, maybe for several pods that started
// at the same time.
func (h *scenario) pulled(v *fixture.Version, since time.Time) {
	h.t.Helper()
	events, err := h.Kube.CoreV1().Events("").List(h.ctx, metav1.ListOptions{FieldSelector: "reason=Pulled"})
	h.must(err)
	pulled := map[string]int{}
	for _, e := range events.Items {
		for _, image := range []string{v.Operator, v.Reporter} {
			if !strings.Contains(e.Message, image) || e.LastTimestamp.Time.Before(since.Truncate(time.Second)) {
				continue
			}
			h.t.Logf("%s/%s: %s", e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Message)
			if strings.HasPrefix(e.Message, "Successfully pulled") {
				pulled[image]++
			}
		}
	}
	if pulled[v.Operator] == 0 || pulled[v.Reporter] == 0 {
		h.t.Errorf("pulled %v, want each image", pulled)
	}
}

// replaceCompanion deletes kube-apiserver's companion, and waits for the next one's report.
func (h *scenario) replaceCompanion(v *fixture.Version) *corev1.Pod {
	h.t.Helper()
	pods := h.Kube.CoreV1().Pods(fixture.Home)
	companion := func() (*corev1.Pod, error) {
		list, err := pods.List(h.ctx, metav1.ListOptions{LabelSelector: "kmshealth.openshift.io/api-server=" + apiservers.Kube.Name})
		if err == nil && len(list.Items) != 1 {
			err = fmt.Errorf("%d companions", len(list.Items))
		}
		if err != nil {
			return nil, err
		}
		return &list.Items[0], nil
	}
	before, err := companion()
	h.must(err)
	h.must(pods.Delete(h.ctx, before.Name, metav1.DeleteOptions{}))
	var next *corev1.Pod
	h.await(2*time.Minute, "a new companion runs", func() error {
		if next, err = companion(); err != nil {
			return err
		}
		if next.UID == before.UID || !fixture.Ready(next) {
			return fmt.Errorf("%s: %s", next.Name, next.Status.Phase)
		}
		return nil
	})
	if image := next.Spec.Containers[0].Image; image != v.Reporter {
		h.t.Errorf("the new companion's image is %s, want %s", image, v.Reporter)
	}
	_, err = h.seen.Await(h.ctx, apiservers.Kube, next.CreationTimestamp.Time, time.Minute, "its report", func(s fixture.State) error {
		return s.Fresh(h.node().Name, next.CreationTimestamp.Time)
	})
	h.must(err)
	h.awaitHealthy(apiservers.All...)
	return next
}

// lastPull is what the kubelet has reported about a pod's image.
func (h *scenario) lastPull(pod *corev1.Pod) (message string) {
	h.t.Helper()
	h.await(10*time.Second, "the kubelet reports the image of "+pod.Name, func() error {
		events, err := h.Kube.CoreV1().Events(pod.Namespace).List(h.ctx, metav1.ListOptions{
			FieldSelector: "reason=Pulled,involvedObject.uid=" + string(pod.UID),
		})
		if err == nil && len(events.Items) == 0 {
			err = fmt.Errorf("no event")
		}
		if err == nil {
			message = events.Items[len(events.Items)-1].Message
		}
		return err
	})
	h.t.Logf("%s/%s: %s", pod.Namespace, pod.Name, message)
	return message
}
