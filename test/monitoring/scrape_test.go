package monitoring

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/program"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// scrape is /metrics of a reporter that has probed a plugin.
func scrape(t *testing.T) string {
	t.Helper()
	dir := program.SocketDir(t)
	endpoint := "unix://" + dir + "/kms-1.sock"
	plugin, err := kmsplugin.Start(kmsplugin.Options{Endpoint: endpoint, StateDir: dir + "/state"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plugin.Close() })
	address, err := controlplane.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `apiVersion: kmshealth.openshift.io/v1alpha1
kind: ReporterConfiguration
probe: {interval: 1s}
plugins: [{endpoint: %q, role: Write}]
serving: {address: %q}
`, endpoint, address), 0o600); err != nil {
		t.Fatal(err)
	}
	binary, err := program.Build(dir, "cmd/kms-health-reporter")
	if err != nil {
		t.Fatal(err)
	}
	program.Start(t, exec.CommandContext(t.Context(), binary, "--config", config))
	var text string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		response, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			continue // it does not listen yet
		}
		raw, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if text = string(raw); err == nil && strings.Contains(text, `kms_health_reporter_plugin_status{key_id="1",status="healthy"} 1`) {
			return text
		}
	}
	t.Fatalf("no healthy plugin in\n%s", text)
	return ""
}

// Those of the operator pass the same linter in pkg/operator and pkg/operator/status: it shows
// them only to those whom an API server knows.
func TestPrometheusAcceptsTheReportersMetrics(t *testing.T) {
	text := scrape(t)
	for _, name := range []string{
		"kms_health_reporter_probes_total", "kms_health_reporter_probe_duration_seconds", "kms_health_reporter_last_probe_timestamp_seconds",
		"kms_health_reporter_plugin_status", "kms_health_reporter_config_reloads_total", "kms_health_reporter_config_info",
		"kms_health_reporter_config_applied_timestamp_seconds", "kms_health_reporter_build_info",
	} {
		if !strings.Contains(text, "# TYPE "+name+" ") {
			t.Errorf("no %s", name)
		}
	}
	promtool(t, []byte(text), "check", "metrics")
}
