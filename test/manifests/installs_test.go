package manifests

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/manifests/install"
)

// Every overlay, and every component with the overlay that it is for.
var installs = map[string][][]string{
	install.OpenShift: {
		nil, {"single-replica"}, {"start-during-plugin-outage"}, {"deployment"},
		{"single-replica", "start-during-plugin-outage", "deployment"},
	},
	install.SingleNode: {nil, {"deployment"}},
	install.Kubernetes: {
		nil, {"monitoring"}, {"single-replica"}, {"start-during-plugin-outage"}, {"deployment/kubernetes"},
		{"single-replica", "start-during-plugin-outage", "deployment/kubernetes"},
	},
}

func TestEveryComponentIsInAnInstall(t *testing.T) {
	var tested []string
	for _, all := range installs {
		tested = append(tested, slices.Concat(all...)...)
	}
	for path, content := range textFiles(t, root+"/components") {
		component, err := filepath.Rel(root+"/components", filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		// The overlays include images themselves.
		if strings.Contains(content, "\nkind: Component\n") && !slices.Contains(tested, component) && component != "images" {
			t.Errorf("no install has the component %s", component)
		}
	}
}
