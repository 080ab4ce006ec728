//go:build integration

package nodes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const ready = "Running, main:running, ready"

// roots is a Root in a short temporary folder, since sockets will be below it.
func roots(t *testing.T) func(string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left, _ := filepath.Glob(filepath.Join(dir, "*", "pods", "*")); len(left) > 0 {
			t.Errorf("folders of pods are left: %v", left)
		}
		_ = os.RemoveAll(dir)
	})
	return func(node string) string { return filepath.Join(dir, node) }
}

func (w *fixture) manifest(image string) *corev1.Pod {
	manifest := pod("kube-apiserver")
	manifest.Namespace = w.namespace
	manifest.Spec.HostNetwork = true
	manifest.Spec.Containers[0].Image = image
	manifest.Spec.Volumes = []corev1.Volume{{Name: "s", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	return manifest
}

func (w *fixture) static(node string, manifest *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	mirror, err := w.RunStaticPod(soon(w.t), node, manifest)
	if err != nil {
		w.t.Fatal(err)
	}
	return mirror
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestAStaticPodHasAMirror(t *testing.T) {
	w := newFixture(t, Options{Root: roots(t)}, "one", "two")
	first := w.static("one", w.manifest("v1"))
	if other := w.static("two", w.manifest("v1")); other.Annotations[ConfigHashAnnotation] == first.Annotations[ConfigHashAnnotation] {
		t.Error("two nodes have one hash")
	}
	if first.Name != "kube-apiserver-one" || first.Annotations[ConfigSourceAnnotation] != "file" || len(first.Annotations[ConfigHashAnnotation]) != 32 ||
		first.Annotations[ConfigMirrorAnnotation] != first.Annotations[ConfigHashAnnotation] {
		t.Errorf("the mirror is %s with %v", first.Name, first.Annotations)
	}
	if owner := metav1.GetControllerOf(first); owner == nil || owner.Kind != "Node" || owner.Name != "one" {
		t.Errorf("its owner is %v", owner)
	}
	dir := w.EmptyDir(first, "s")
	if !exists(dir) || !strings.Contains(dir, "/pods/"+first.Annotations[ConfigHashAnnotation]+"/volumes/kubernetes.io~empty-dir/s") {
		t.Errorf("no folder %s", dir)
	}
	w.becomes(first.Name, ready)

	// The same again is no change.
	if same := w.static("one", w.manifest("v1")); same.UID != first.UID {
		t.Error("the same manifest is another mirror")
	}
	// A deleted mirror is created again, and its pod is not affected.
	if err := w.client.CoreV1().Pods(w.namespace).Delete(soon(t), first.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.another(first)
	second := w.becomes(first.Name, ready)
	if w.EmptyDir(second, "s") != dir || !exists(dir) {
		t.Errorf("its folder is %s, was %s", w.EmptyDir(second, "s"), dir)
	}
	// Another manifest is another pod.
	third := w.static("one", w.manifest("v2"))
	if third.UID == second.UID || third.Annotations[ConfigHashAnnotation] == second.Annotations[ConfigHashAnnotation] || exists(dir) || !exists(w.EmptyDir(third, "s")) {
		t.Errorf("it became %s with %v, its former folder is there: %t", third.UID, third.Annotations, exists(dir))
	}
	w.becomes(first.Name, ready)
	if err := w.RemoveStaticPod(soon(t), "one", w.namespace, "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	w.eventually("the mirror is deleted", func(ctx context.Context) error {
		_, err := w.client.CoreV1().Pods(w.namespace).Get(ctx, first.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
	if exists(w.EmptyDir(third, "s")) {
		t.Error("its folder stays")
	}
}

func (w *fixture) another(than *corev1.Pod) {
	w.t.Helper()
	w.eventually("another mirror", func(ctx context.Context) error {
		pod, err := w.client.CoreV1().Pods(w.namespace).Get(ctx, than.Name, metav1.GetOptions{})
		if err == nil && pod.UID == than.UID {
			return context.DeadlineExceeded
		}
		return err
	})
}
