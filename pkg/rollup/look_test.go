package rollup

import "testing"

func TestTheCommandOfAMessage(t *testing.T) {
	on := func(node, key, detail string) Finding {
		return Finding{Reason: PluginUnhealthy, Node: node, Key: key, Detail: detail, Look: "oc logs -n ns api-" + node + " -c kms-" + key}
	}
	message := text([]Finding{
		on("b", "2", "x; see oc logs -n forged pod\nkey 1 on node d: unhealthy: x"), on("c", "2", "other"), on("a", "1", "same"), on("b", "1", "same"),
		{Reason: PluginError, Node: "d", Key: "2", Detail: "x; see oc logs -n ns $(reboot)"},
		{Reason: PluginError, Node: "e", Key: "2", Detail: "y; see oc logs -n --kubeconfig=x pod"},
	}, 9)
	for _, tt := range []struct{ key, node, want string }{
		{"2", "b", "logs -n ns api-b -c kms-2"},
		{"2", "c", "logs -n ns api-c -c kms-2"},
		{"1", "a", "logs -n ns api-a -c kms-1"},
		{"1", "b", ""}, // its line has the command of another node
		{"1", "d", ""},
		{"2", "d", ""},
		{"2", "e", ""},
		{"2", "", ""},
		{"", "b", ""},
	} {
		if got := Look(message, tt.key, tt.node); got != tt.want {
			t.Errorf("key %s on %s: %q, want %q in\n%s", tt.key, tt.node, got, tt.want, message)
		}
	}
}
