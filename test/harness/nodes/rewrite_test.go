package nodes

import "testing"

func TestRewriteReplacesWholePathsTheLongestFirst(t *testing.T) {
	r := newRewriter(map[string]string{
		"/etc/kms":               "/A",
		"/etc/kms/credentials":   "/B",
		"/run":                   "/etc/kms", // what is written is not looked at again
		"https://localhost:6443": "https://127.0.0.1:1",
	})
	for text, want := range map[string]string{
		"":                                 "",
		"/etc/kms":                         "/A",
		"--config=/etc/kms/config.yaml":    "--config=/A/config.yaml",
		"/etc/kms/credentials/kubeconfig":  "/B/kubeconfig",
		"/etc/kms/credentials-2":           "/A/credentials-2",
		"/etc/kms-health/config":           "/etc/kms-health/config",
		"/host/etc/kms":                    "/host/etc/kms",
		"/etc/kms,/etc/kms\n/etc/kms":      "/A,/A\n/A",
		"unix:///run/kms-1.sock":           "unix:///etc/kms/kms-1.sock",
		"server: https://localhost:6443\n": "server: https://127.0.0.1:1\n",
		"https://localhost:64430":          "https://localhost:64430",
	} {
		if got := r.rewrite(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	if got := r.content([]byte("\xff/run")); string(got) != "\xff/run" {
		t.Errorf("bytes that are no text became %q", got)
	}
}

func TestExpandKnowsWhatIsKnown(t *testing.T) {
	values := map[string]string{"NODE": "one"}
	for text, want := range map[string]string{
		"--node-name=$(NODE)": "--node-name=one",
		"$$(NODE)":            "$(NODE)",
		"$(OTHER) $NODE $":    "$(OTHER) $NODE $",
	} {
		if got := expand(text, values); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
