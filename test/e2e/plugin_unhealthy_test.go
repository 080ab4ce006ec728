//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"time"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/e2e/fixture"
	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// The plugin becomes unhealthy, and recovers, for a reporter of each mode.
func testPluginUnhealthy(h *scenario) {
	for _, server := range apiservers.All {
		h.parts(part{name: server.Name, run: func(h *scenario) {
			plugin := h.pluginOf(server)
			h.awaitHealthy(server)
			h.seal(server, plugin, time.Minute, "node node-1", "key 1", "vault is sealed")
			h.heal(server, plugin, time.Minute)
		}})
	}
}

// seal makes a plugin of an API server unhealthy, and waits until KMSPluginsDegraded has these texts.
func (h *scenario) seal(server apiservers.Server, plugin kmsplugin.Client, limit time.Duration,
	texts ...string) fixture.State {
	start := time.Now()
	h.do(plugin, "unhealthy", "vault is sealed")
	return h.awaitOf(server, start, limit, "KMSPluginsDegraded is True", func(s fixture.State) error {
		message := s.Conditions[contract.PluginsDegraded].Message
		for _, text := range texts {
			if !strings.Contains(message, text) {
				return fmt.Errorf("no %q in %q", text, message)
			}
		}
		return s.Is(contract.PluginsDegraded, "True", contract.PluginUnhealthy)
	})
}

// heal ends seal, and waits until KMSPluginsDegraded is False.
func (h *scenario) heal(server apiservers.Server, plugin kmsplugin.Client, limit time.Duration) {
	start := time.Now()
	h.do(plugin, "heal")
	h.awaitOf(server, start, limit, "KMSPluginsDegraded is False", asExpected)
}
