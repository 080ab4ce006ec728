package kmsplugin

import (
	"context"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// controlled starts a plugin that takes commands, and a client for it.
func controlled(t *testing.T) (*Plugin, *Client) {
	t.Helper()
	path := filepath.Join(socketDir(t), "control.sock")
	p := start(t, Options{})
	control, err := ServeControl(p, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := control.Close(); err != nil {
			t.Errorf("closing the control socket: %v", err)
		}
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("the control socket's file: %v", err)
		}
	})
	if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("control socket: %v, %v; want mode 0600", info, err)
	}
	client, err := NewClient(path)
	if err != nil {
		t.Fatal(err)
	}
	return p, client
}

func TestEveryFaultIsSetAndHealedOverTheControlSocket(t *testing.T) {
	t.Parallel()
	p, client := controlled(t)
	c := dial(t, p)
	for _, kind := range Faults() {
		state, err := client.Do(soon(t), kind.Name, kind.Example...)
		if err != nil {
			t.Fatal(err)
		}
		want := Fault{Name: kind.Name, Args: kind.Example}.String()
		if len(state.Faults) != 1 || state.Faults[0].String() != want {
			t.Errorf("faults %v, want %s", state.Faults, want)
		}
		shows[kind.Name](t, p, c)
		if state, err = client.Do(soon(t), "heal", kind.Name); err != nil || len(state.Faults) != 0 {
			t.Errorf("healing %s: faults %v, %v", kind.Name, state.Faults, err)
		}
		c.mustBeHealthy(t, p)
	}
}

func TestCommandsOverTheControlSocket(t *testing.T) {
	t.Parallel()
	p, client := controlled(t)
	do := func(name string, args ...string) State {
		t.Helper()
		state, err := client.Do(soon(t), name, args...)
		if err != nil {
			t.Fatalf("%s %q: %v", name, args, err)
		}
		return state
	}
	first := p.KeyID()
	if state := do("rotate"); state.KeyID == first || state.KeyID != p.KeyID() || state.Keys != 2 {
		t.Errorf("rotate: %+v", state)
	}
	if state := do("reload"); state.KeyID != p.KeyID() {
		t.Errorf("reload: %+v", state)
	}
	if state := do("health", "on"); !state.GRPCHealth {
		t.Error("health on: it is off")
	}
	if state := do("health", "off"); state.GRPCHealth {
		t.Error("health off: it is on")
	}
	if state := do("crash"); state.Listening {
		t.Error("crash: it listens")
	}
	if state := do("return"); !state.Listening {
		t.Error("return: it does not listen")
	}
	if state := do("remove-socket"); state.Listening {
		t.Error("remove-socket: it listens")
	}
	if state := do("restore-socket"); !state.Listening {
		t.Error("restore-socket: it does not listen")
	}
	do("unhealthy", "vault", "is", "sealed")
	if state := do("slow", "1s"); len(state.Faults) != 2 {
		t.Errorf("faults: %v", state.Faults)
	}
	if state := do("heal"); len(state.Faults) != 0 {
		t.Errorf("faults after heal: %v", state.Faults)
	}
	dial(t, p).mustBeHealthy(t, p)
	state := do("status")
	if state.Calls[CallStatus].Count != 1 || state.Calls[CallStatus].First.IsZero() || state.PID != os.Getpid() || state.Endpoint != p.Endpoint() {
		t.Errorf("status: %+v", state)
	}
	if got, err := client.State(soon(t)); err != nil || got.Calls[CallStatus] != state.Calls[CallStatus] {
		t.Errorf("State: %+v, %v", got, err)
	}
	if state := do("reset-counters"); state.Calls[CallStatus].Count != 0 {
		t.Errorf("reset-counters: %+v", state.Calls)
	}
}

func TestAControlPathMayBeRelative(t *testing.T) {
	t.Parallel()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"control.sock":       filepath.Join(wd, "control.sock"),
		"/run/control.sock":  "/run/control.sock",
		"unix:///run/c.sock": "/run/c.sock",
		"@control":           "@control",
		"":                   "",
		"unix://c.sock":      "",
	} {
		if s, err := parseControlPath(path); string(s) != want || (err == nil) != (want != "") {
			t.Errorf("parseControlPath(%q) = %q, %v; want %q", path, s, err, want)
		}
	}
}

func TestABadCommandSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	_, client := controlled(t)
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"sulk"}, `"sulk"`},
		{[]string{""}, "no command"},
		{[]string{"heal", "sulk"}, `"sulk"`},
		{[]string{"heal", "hang", "crash"}, "at most"},
		{[]string{"health"}, "on or off"},
		{[]string{"rotate", "twice"}, "no arguments"},
		{[]string{"rpc-error", "Sulky"}, "PermissionDenied"},
		{[]string{"rpc-error"}, "rpc-error CODE [TEXT]"},
	} {
		if _, err := client.Do(soon(t), c.words[0], c.words[1:]...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.words, err, c.want)
		}
	}
	if _, err := client.send(soon(t), http.MethodPost, commandPath, []byte("sulk")); err == nil || !strings.Contains(err.Error(), "reading the command") {
		t.Errorf("no JSON: %v", err)
	}
	if _, err := client.send(soon(t), http.MethodGet, "/sulk", nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("no such path: %v", err)
	}
}

func TestAClientWithoutAPluginSaysSo(t *testing.T) {
	t.Parallel()
	if _, err := NewClient(""); err == nil {
		t.Error("no path was accepted")
	}
	client, err := NewClient(filepath.Join(socketDir(t), "control.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(context.Background(), "status"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
}
