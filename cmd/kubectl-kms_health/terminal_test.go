package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestTheWidthIsThatOfTheTerminal(t *testing.T) {
	of := func(n int) func() int { return func() int { return n } }
	for name, tt := range map[string]struct {
		command command
		want    int
	}{
		"no terminal":                          {command{}, 80},
		"no terminal does not ask for COLUMNS": {command{env: map[string]string{"COLUMNS": "300"}}, 80},
		"a terminal":                           {command{terminal: of(132)}, 132},
		"a terminal whose width is not known":  {command{terminal: of(0)}, 80},
		"COLUMNS":                              {command{terminal: of(132), env: map[string]string{"COLUMNS": "100"}}, 100},
		"COLUMNS without a number":             {command{terminal: of(132), env: map[string]string{"COLUMNS": "-1"}}, 132},
	} {
		o := options{environment: environment{terminal: tt.command.terminal, getenv: func(name string) string { return tt.command.env[name] }}}
		if got := o.table().Width; got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

func TestNoHeaders(t *testing.T) {
	for _, form := range []string{"", "wide"} {
		_, with, _ := command{}.run(t, "status", "-o", form, "--from-file=testdata/unhealthy.yaml")
		_, without, _ := command{}.run(t, "status", "-o", form, "--no-headers", "--from-file=testdata/unhealthy.yaml")
		if first, rest, _ := strings.Cut(with, "\n"); !strings.HasPrefix(first, "TARGET ") || rest != without {
			t.Errorf("%q: %q", form, without)
		}
	}
}

func TestAnotherUserIsImpersonated(t *testing.T) {
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		apiServer{date: taken}.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	code, _, stderr := command{}.run(t, "status", "--target=kubeapiservers", "--kubeconfig", kubeconfig(t, server.URL), "--as=admin", "--as-uid=7", "--as-group=a", "--as-group=b")
	if code != 0 || got.Get("Impersonate-User") != "admin" || got.Get("Impersonate-Uid") != "7" || !slices.Equal(got.Values("Impersonate-Group"), []string{"a", "b"}) {
		t.Errorf("%d, %q, %v", code, stderr, got)
	}
}
