package objects

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var mirror = map[string]string{"kubernetes.io/config.mirror": "h-0", "kubernetes.io/config.hash": "h-0"}

func TestUID(t *testing.T) {
	for name, tt := range map[string]struct {
		uid         types.UID
		annotations map[string]string
		want, err   string
	}{
		"a pod's own":                     {"u-1", nil, "u-1", ""},
		"a static pod's is in its mirror": {"u-1", mirror, "h-0", ""},
		"a hash alone makes no mirror":    {"u-1", map[string]string{"kubernetes.io/config.hash": "h-0"}, "u-1", ""},
		"a pod without":                   {"", nil, "", `metadata.uid: "" is not the UID of a pod`},
		"a mirror without": {
			"u-1", map[string]string{"kubernetes.io/config.mirror": "x"}, "",
			"metadata.annotations[kubernetes.io/config.hash]: is missing in the mirror of a static pod, whose UID it holds",
		},
		"a mirror with a path": {
			"u-1", map[string]string{"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": "../.."}, "",
			`metadata.annotations[kubernetes.io/config.hash]: "../.." is not the UID of a static pod`,
		},
		"a mirror with dots": {
			"u-1", map[string]string{"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": ".."}, "",
			`metadata.annotations[kubernetes.io/config.hash]: ".." is not the UID of a static pod`,
		},
		"a mirror with a line after": {
			"u-1", map[string]string{"kubernetes.io/config.mirror": "x", "kubernetes.io/config.hash": "h\n"}, "",
			`metadata.annotations[kubernetes.io/config.hash]: "h\n" is not the UID of a static pod`,
		},
		"a mirror with an empty annotation": {
			"u-1", map[string]string{"kubernetes.io/config.mirror": "", "kubernetes.io/config.hash": ""}, "",
			`metadata.annotations[kubernetes.io/config.hash]: "" is not the UID of a static pod`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: tt.uid, Annotations: tt.annotations}}
			got, err := PodUID(pod)
			wantError(t, err, tt.err)
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
