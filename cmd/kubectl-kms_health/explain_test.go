package main

import (
	"strings"
	"testing"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/show"
)

func TestEachNameIsExplained(t *testing.T) {
	for _, name := range show.Names() {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := kubectl(t, environment{}, "explain", strings.ToLower(name))
			if code != 0 || stderr != "" || !strings.Contains(stdout, "  Means ") || !strings.Contains(stdout, name) {
				t.Errorf("got %d, %q, %q, want the block with %s", code, stdout, stderr, name)
			}
		})
	}
}

func TestExplanationOf(t *testing.T) {
	for name, tt := range map[string]struct{ arg, want string }{
		"a reason of a ClusterOperator": {"KMSPlugins_PluginError", "\n  Sets KMSPluginsDegraded: True\n"},
		"reasons that are joined":       {"KMSPlugins_PluginError::KmsHealthReports_Error", "\n  Sets KMSPluginsDegraded: True\n"},
		"a reason with an underscore":   {"Configuration_Invalid", "Configuration_Invalid\n"},
		"a condition":                   {"KMSWriteKeyAgreed", "\n  Unknown   a node is missing, silent or unhealthy"},
		"one node's condition":          {"KMSHealthReporter_master-0", "KMSHealthReporter_<node>\n"},
		"an alert of a reason":          {"KMSWriteKeysDiffer", "\n  Alert     KMSWriteKeysDiffer\n"},
		"a reason of a condition":       {"PluginUnhealthy", "\n  Do not    restart, drain, reboot or upgrade an API server"},
		"a reason of a report":          {"PermissionDenied", "\n  Do not    restart, drain, reboot or upgrade an API server"},
	} {
		t.Run(name, func(t *testing.T) {
			if code, stdout, _ := kubectl(t, environment{}, "explain", tt.arg); code != 0 || !strings.Contains(stdout, tt.want) {
				t.Errorf("got %d, %q, want %q", code, stdout, tt.want)
			}
		})
	}
}

func TestExplanationsFitATerminal(t *testing.T) {
	_, stdout, _ := kubectl(t, environment{}, "explain")
	for line := range strings.Lines(stdout) {
		names := strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "   ")
		if len(strings.TrimSpace(line)) > 80 && !names {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
}
