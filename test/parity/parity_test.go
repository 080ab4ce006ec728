package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/kmsplugin"
)

var (
	healthy = opinion{ok: true}
	fails   = opinion{verdict: "failed", why: "x"}
)

func TestOnlyListedDifferencesAgree(t *testing.T) {
	for _, c := range []struct {
		name      string
		unhealthy bool
		differs   int
		v         verdicts
		want      string // empty: an error
	}{
		{"all healthy", false, 0, verdicts{healthy, 1, healthy, healthy}, "same"},
		{"all unhealthy", true, 0, verdicts{fails, 1, fails, fails}, "same"},
		{"unhealthy, and the plugin cannot be asked", true, 0, verdicts{fails, 0, fails, fails}, "same"},
		{"healthy, by an answer from before the fault", false, 0, verdicts{healthy, 0, healthy, healthy}, ""},
		{"we alone call it unhealthy", false, 0, verdicts{healthy, 1, fails, fails}, ""},
		{"we alone call it healthy", true, 0, verdicts{fails, 1, healthy, healthy}, ""},
		{"RoundTrip alone calls it unhealthy", false, 0, verdicts{healthy, 1, healthy, fails}, ""},
		{"RoundTrip alone calls it healthy", true, 0, verdicts{fails, 1, fails, healthy}, ""},
		{"kube-apiserver does not see the fault any more", true, 0, verdicts{healthy, 1, healthy, healthy}, ""},
		{"kube-apiserver sees what was no fault", false, 0, verdicts{fails, 1, fails, fails}, ""},

		{"encrypt is not tried by kube-apiserver", false, notTried, verdicts{healthy, 1, healthy, fails}, "2"},
		{"encrypt is tried by kube-apiserver", true, notTried, verdicts{fails, 1, healthy, fails}, "2"},
		{"encrypt is not tried by anyone", false, notTried, verdicts{healthy, 1, healthy, healthy}, ""},
		{"encrypt spoils our Status", false, notTried, verdicts{healthy, 1, fails, fails}, ""},

		{"too large for us", false, tooLarge, verdicts{healthy, 1, fails, fails}, "3"},
		{"too large for both", true, tooLarge, verdicts{fails, 1, fails, fails}, ""},
		{"too large for none", false, tooLarge, verdicts{healthy, 1, healthy, healthy}, ""},

		{"the lag is waited out, so no row may have it", false, 1, verdicts{healthy, 1, fails, fails}, ""},
		{"a number that is not listed", false, 4, verdicts{healthy, 1, fails, fails}, ""},
	} {
		got, err := compare(fault{unhealthy: c.unhealthy, differs: c.differs}, c.v)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: got %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}

func TestTheTableNamesTheRowThatFails(t *testing.T) {
	var out strings.Builder
	failed := printTable(&out, []*subject{{fault: fault{name: "new fault"}}}, []verdicts{{healthy, 1, fails, fails}})
	if len(failed) != 1 || !strings.HasPrefix(failed[0].Error(), "new fault: ") || !strings.Contains(out.String(), "NO") {
		t.Errorf("got %v and\n%s", failed, &out)
	}
}

func TestParseFindsTheUnhealthyProviders(t *testing.T) {
	three := `internal server error: [kms-provider-1: kmsv2 Provider p1 is not healthy, error: [a, b], kms-provider-10: c]` + "\n"
	for _, c := range []struct {
		name string
		code int
		body string
		want map[int]string // by provider; nil: an error
	}{
		{"all healthy", http.StatusOK, "ok", map[int]string{}},
		{"two unhealthy", http.StatusInternalServerError, three,
			map[int]string{1: "kmsv2 Provider p1 is not healthy, error: [a, b]", 10: "c]"}},
		{"one unhealthy", http.StatusInternalServerError, "internal server error: kms-provider-0: c\n", map[int]string{0: "c"}},
		{"none named", http.StatusInternalServerError, "internal server error: no", nil},
		{"a stranger named", http.StatusInternalServerError, "internal server error: kms-provider-11: c", nil},
		{"another code", http.StatusGatewayTimeout, three, nil},
		{"another text", http.StatusOK, "[+]ping ok", nil},
	} {
		got, err := parse(c.code, c.body, 11)
		if (err == nil) != (c.want != nil) {
			t.Errorf("%s: got %v, %v", c.name, got, err)
		}
		for i, o := range got {
			if why, unhealthy := c.want[i]; o.ok == unhealthy || o.why != why {
				t.Errorf("%s: provider %d: got %q, want %q", c.name, i, o, why)
			}
		}
	}
}

func TestEveryFaultCanBeSetAndHealed(t *testing.T) {
	s, err := startSubjects(faults)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.fall(); err != nil {
		t.Error(err)
	}
	if err := s.each(func(_ int, p *subject) error { return p.heal() }); err != nil {
		t.Error(err)
	}
}

// A fault that the development plugin learns must be compared too.
func TestEveryFaultOfThePluginIsCompared(t *testing.T) {
	var compared []string
	names := map[string]bool{}
	for _, f := range faults {
		for _, line := range slices.Concat(f.start, f.steps) {
			compared = append(compared, strings.Fields(line)[0])
		}
		if names[f.name] {
			t.Errorf("two faults are called %q", f.name)
		}
		names[f.name] = true
	}
	for _, kind := range kmsplugin.Faults() {
		if !slices.Contains(compared, kind.Name) {
			t.Errorf("no row has the plugin's fault %q", kind.Name)
		}
	}
}

func TestShortKeepsTheReason(t *testing.T) {
	for why, want := range map[string]string{
		`failed to perform status section of the healthz check for KMS Provider parity-3, error: rpc error: code = Internal desc = no`:                 "failed: Internal: no",
		`kmsv2 Provider parity-3 is not healthy, error: failed to rotate DEK uid="1", useSeed=true, errState=<nil>, errGen=<nil>, statusKeyIDHash="a"`: "failed: Encrypt names another key than Status",
		strings.Repeat("é", 100): "failed: " + strings.Repeat("é", widest-9) + "…",
	} {
		if got := short(opinion{verdict: "failed", why: why}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
