//go:build integration

package monitoring

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// All metrics of envelope encryption are ALPHA: a release of Kubernetes may rename them.
// Rules and dashboard are then empty, and nothing else would show it: rename them in the recording, too.
func TestRealAPIServerHasTheSeriesOfTheRecording(t *testing.T) {
	s := startEncrypted(t)
	if _, err := s.plugin.Rotate(); err != nil {
		t.Fatal(err)
	}
	var now map[string]float64
	want := seriesOf(t, recorded)
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Second) {
		s.use(t)
		now = s.scrape(t)
		if strings.Contains(fmt.Sprint(now), `key_id_hash="`+hashOf(s.plugin.KeyID())) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no series has the hash of the plugin's key id as we compute it")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		labels := labelsIn(now, name)
		if !slices.Equal(labels, want[name]) {
			t.Errorf("%s has the labels %v, recorded were %v", name, labels, want[name])
		}
	}
}

type encrypted struct {
	control *controlplane.ControlPlane
	plugin  *kmsplugin.Plugin
	kube    kubernetes.Interface
	http    *http.Client
	used    int
}

func startEncrypted(t *testing.T) *encrypted {
	t.Helper()
	dir := t.TempDir()
	plugin, err := kmsplugin.Start(kmsplugin.Options{Endpoint: "unix://" + filepath.Join(dir, "kms-2.sock"), StateDir: filepath.Join(dir, "keys")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plugin.Close() })
	control, err := controlplane.Start(t.Context(), controlplane.Options{EncryptionConfig: fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {apiVersion: v2, name: kms-2_secrets, endpoint: %q, timeout: 10s}
  - identity: {}
`, plugin.Endpoint())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := control.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &encrypted{control: control, plugin: plugin}
	if s.kube, err = kubernetes.NewForConfig(control.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	if s.http, err = rest.HTTPClientFor(control.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	return s
}

// use writes a Secret, and reads that and the first one. Writing may fail, as it does when
// the plugin has not been healthy for 3 minutes.
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

// scrape returns the series of envelope encryption.
func (s *encrypted) scrape(t *testing.T) map[string]float64 {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.control.URL()+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	found := map[string]float64{}
	lines := bufio.NewScanner(io.LimitReader(response.Body, 64<<20))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		// Those of dek_cache are of KMS v1.
		if !strings.HasPrefix(line, "apiserver_envelope_encryption_") || strings.Contains(line, "_dek_cache_") {
			continue
		}
		at := strings.LastIndex(line, " ")
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatal(line, err)
		}
		found[line[:at]] = value
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

var nameAndLabels = regexp.MustCompile(`^([a-z_]+)\{(.*)\}$`)

var labelName = regexp.MustCompile(`([a-z_]+)="`)

// labelsIn are the names of the labels of a metric's series.
func labelsIn(series map[string]float64, name string) (labels []string) {
	for s := range series {
		m := nameAndLabels.FindStringSubmatch(s)
		if len(m) < 3 || m[1] != name {
			continue
		}
		for _, l := range labelName.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels, l[1]) {
				labels = append(labels, l[1])
			}
		}
	}
	slices.Sort(labels)
	return labels
}

func hashOf(keyID string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(keyID))) }
