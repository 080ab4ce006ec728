//go:build integration

package monitoring

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/wait"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// Both share one kube-apiserver.
func TestRealAPIServer(t *testing.T) {
	s := startEncrypted(t)
	t.Run("has the series of the recording", s.hasTheSeries)
	t.Run("keeps a wrong data key", s.keepsAWrongDataKey)
}

// All metrics of envelope encryption are ALPHA, so a release of Kubernetes may rename them. Then the rules and the
// dashboard find no series, and only this test shows it. Rename them in the recording, too.
func (s *encrypted) hasTheSeries(t *testing.T) {
	want := labelsOf(readRecording(t))
	var now []inputSeries
	wait.Eventually(t, time.Minute, "a series has the plugin's key id, hashed as the rules do", func() error {
		s.use(t)
		if now = s.scrape(t); !strings.Contains(fmt.Sprint(now), `key_id_hash="`+hashOf(s.plugin.KeyID())) {
			return fmt.Errorf("there are %v", now)
		}
		return nil
	})
	labels := labelsOf(now)
	for name := range want {
		if !slices.Equal(labels[name], want[name]) {
			t.Errorf("%s has the labels %v, recorded were %v", name, labels[name], want[name])
		}
	}
}

// The alert KMSStoredDataUnreadable and its runbook rely on this: kube-apiserver keeps a wrong answer to Decrypt until
// it is restarted.
func (s *encrypted) keepsAWrongDataKey(t *testing.T) {
	s.use(t)
	restart := func() {
		must.Succeed(t, errors.Join(s.control.StopAPIServer(t.Context()), s.control.StartAPIServer(t.Context())))
	}
	reads := func(what, name, want string) {
		t.Helper()
		wait.Eventually(t, 2*time.Minute, what, func() error {
			_, err := s.kube.CoreV1().Secrets("default").Get(t.Context(), name, metav1.GetOptions{})
			if got := fmt.Sprint(err); !strings.Contains(got, want) {
				return errors.New("reading: " + got)
			}
			return nil
		})
	}
	const failed = "message authentication failed"
	must.Succeed(t, s.plugin.SetFault(kmsplugin.Fault{Name: "wrong-decrypt"}))
	restart()
	reads("the wrong data key is tried", "secret-0", failed)
	must.Succeed(t, s.plugin.ClearFaults())
	s.plugin.ResetCounters()
	for range 5 {
		reads("the wrong data key is kept", "secret-0", failed)
	}
	if n := s.plugin.Calls(kmsplugin.CallDecrypt).Count; n > 0 {
		t.Errorf("%d calls of Decrypt", n)
	}
	counts := func(prefix string) {
		t.Helper()
		if found := fmt.Sprint(s.scrape(t)); !strings.Contains(found, `resource="secrets",status="unknown-non-grpc",`+
			`transformation_type="from_storage",transformer_prefix="`+prefix+`"`) {
			t.Errorf("no series of failed reads by %s: %s", prefix, found)
		}
	}
	counts("k8s:enc:kms:v2:kms-2_secrets:")
	restart()
	reads("the data, after a restart", "secret-0", fmt.Sprint(nil))
	s.store(t, "removed", "k8s:enc:kms:v2:removed:")
	reads("the data of a provider that was removed", "removed", "no matching prefix found")
	counts("unknown")
}

// store writes a Secret's value into etcd.
func (s *encrypted) store(t *testing.T, name, value string) {
	t.Helper()
	put := fmt.Sprintf(`{"key": %q, "value": %q}`, base64.StdEncoding.EncodeToString([]byte("/registry/secrets/default/"+name)),
		base64.StdEncoding.EncodeToString([]byte(value)))
	answer, err := http.Post(s.control.EtcdURL()+"/v3/kv/put", "application/json", strings.NewReader(put))
	must.Succeed(t, err)
	must.Equal(t, "etcd's answer", answer.StatusCode, http.StatusOK)
	must.Succeed(t, answer.Body.Close())
}

type encrypted struct {
	plugin  *kmsplugin.Plugin
	control *controlplane.ControlPlane
	kube    kubernetes.Interface
	used    int
}

func startEncrypted(t *testing.T) *encrypted {
	t.Helper()
	dir := t.TempDir()
	plugin := kmsplugin.StartForTest(t, kmsplugin.Options{Endpoint: "unix://" + filepath.Join(dir, "kms-2.sock"), StateDir: filepath.Join(dir, "keys")})
	control := controlplane.StartForTest(t, controlplane.Options{EncryptionConfig: fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {apiVersion: v2, name: kms-2_secrets, endpoint: %q, timeout: 10s}
  - identity: {}
`, plugin.Endpoint())})
	kube := kubernetes.NewForConfigOrDie(control.RESTConfig())
	return &encrypted{plugin: plugin, control: control, kube: kube}
}

// use writes a Secret, and reads that one and the first one. The write may fail, for example if the plugin has been
// unhealthy for 3 minutes.
func (s *encrypted) use(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	secrets := s.kube.CoreV1().Secrets("default")
	name := func(n int) string { return "secret-" + strconv.Itoa(n) }
	if _, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name(s.used)}}, metav1.CreateOptions{}); err != nil {
		t.Log(err)
	}
	for _, n := range []int{0, s.used} {
		if _, err := secrets.Get(ctx, name(n), metav1.GetOptions{}); err != nil {
			t.Log(err)
		}
	}
	s.used++
}

// scrape returns the series of envelope encryption, and of reads and writes of stored data.
func (s *encrypted) scrape(t *testing.T) (found []inputSeries) {
	t.Helper()
	text, err := s.kube.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	must.Succeed(t, err)
	for line := range strings.Lines(string(text)) {
		// The series of dek_cache belong to KMS v1.
		if strings.HasPrefix(line, "apiserver_envelope_encryption_") && !strings.Contains(line, "_dek_cache_") ||
			strings.HasPrefix(line, "apiserver_storage_transformation_operations_total") {
			found = append(found, inputSeries{Series: line})
		}
	}
	return found
}

func hashOf(keyID string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(keyID))) }
