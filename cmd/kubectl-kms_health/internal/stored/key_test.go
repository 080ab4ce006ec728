package stored

import "testing"

// kube-apiserver's keys were seen in etcd. Those of OpenShift and of aggregated API servers (SimpleStorageFactory) are
// taken from their source code.
func TestResourceOfAKey(t *testing.T) {
	for key, want := range map[string][2]string{
		"secrets/default/a":                                        {"secrets", "secrets0"},
		"clusterroles/system:node":                                 {"clusterroles", "clusterroles0"},
		"leases/kube-system/a.b":                                   {"leases", "leases0"},
		"minions/node-1.example.com":                               {"nodes", "minions0"},
		"services/specs/default/kubernetes":                        {"services", "services/specs0"},
		"services/endpoints/default/kubernetes":                    {"endpoints", "services/endpoints0"},
		"ranges/servicenodeports":                                  {"ranges", "ranges0"},
		"apiregistration.k8s.io/apiservices/v1.apps":               {"apiservices.apiregistration.k8s.io", "apiregistration.k8s.io/apiservices0"},
		"operator.openshift.io/kubeapiservers/cluster":             {"kubeapiservers.operator.openshift.io", "operator.openshift.io/kubeapiservers0"},
		"example.com/foos/default/a.b":                             {"foos.example.com", "example.com/foos0"},
		"wardle.example.com/wardle.example.com/flunders/default/a": {"flunders.wardle.example.com", "wardle.example.com/wardle.example.com/flunders0"},
		"oauth/accesstokens/sha256~a":                              {"oauthaccesstokens", "oauth/accesstokens0"},
		"health":                                                   {"health", "health\x00"},
		"/":                                                        {"", "0"},
	} {
		t.Run(key, func(t *testing.T) {
			const prefix = "/registry/"
			name, from, end := resourceOf(prefix, prefix+key)
			if name != want[0] || end != prefix+want[1] {
				t.Errorf("got %q, %q; want %q", name, end, want)
			}
			if from > prefix+key || end <= prefix+key {
				t.Errorf("the key is not from %q to %q: it would not be read, or the reading would not end", from, end)
			}
		})
	}
}

func FuzzResourceOf(f *testing.F) {
	f.Add("secrets/default/a")
	f.Add("a.b/c.d/e/f")
	f.Fuzz(func(t *testing.T, key string) {
		if _, from, end := resourceOf("/registry/", "/registry/"+key); from > "/registry/"+key || end <= "/registry/"+key {
			t.Errorf("the key is not from %q to %q", from, end)
		}
	})
}
