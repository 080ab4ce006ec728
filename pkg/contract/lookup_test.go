package contract

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestWordsHaveLettersAndDigitsAtBothEnds(t *testing.T) {
	for text, want := range map[string]bool{
		"a": true, "AZaz09": true, "a-b": true, strings.Repeat("z", 63): true,
		"": false, "-a": false, "a-": false, "a.b": false, "@": false, "[": false, "`": false,
		"{": false, "/": false, ":": false, "\x00": false,
		strings.Repeat("z", 64): false,
	} {
		if got := IsWord(text, "-"); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

func TestRowsAreFoundByName(t *testing.T) {
	for i, row := range RollupReasons {
		if got := RollupReasonOf(row.Name); got.Name != row.Name || got.Means != row.Means || Severity(row.Name) != i {
			t.Errorf("%s: %+v", row.Name, got)
		}
	}
	if got := RollupReasonOf("Other"); got.Name != "Other" || !got.NeedsAction || Severity("Other") != -1 {
		t.Errorf("without a row: %+v", got)
	}
	for _, r := range append(Resources, KMSHealths) {
		if got := ResourceOf(r.Plural); got.Kind != r.Kind {
			t.Errorf("%s: %+v", r.Plural, got)
		}
		if r.PerAPIServer() != (r.Plural == KMSHealths.Plural) {
			t.Errorf("%s: an object for each API server: %t", r.Plural, r.PerAPIServer())
		}
	}
	if s := ResourceOf(KubeAPIServers).APIServer; s.Container != "kube-apiserver" || s.PodSelector["apiserver"] != "true" {
		t.Errorf("the pods of kube-apiserver: %+v", s)
	}
	if (Resource{Group: KMSHealths.Group, Plural: "others"}).PerAPIServer() {
		t.Error("another resource of the group has an object for each API server")
	}
	if !Timeout.Known() || Reason("Other").Known() {
		t.Error("the reasons of plugins")
	}
}

func TestKeyIDIsThatOfTheSocketsName(t *testing.T) {
	for socket, want := range map[string]string{
		"/var/run/kmsplugin/kms-2.sock": "2", "unix:///@kms-a.b.sock": "a.b", "kms-.sock": "",
		"/run/kms-2": "", "/run/2.sock": "", "/kms-2.sock/plugin": "",
	} {
		if got := KeyIDOfSocket(socket); got != want {
			t.Errorf("%s: %q, want %q", socket, got, want)
		}
	}
}

func TestReportersContainersAreOursAndOpenShifts(t *testing.T) {
	for name, want := range map[string]bool{ReporterContainer: true, "kms-health-reporter": true, "kms-plugin": false} {
		if IsReporter(name) != want {
			t.Errorf("%s is a reporter: %t", name, !want)
		}
	}
}

func TestPrintableJSONIsTheSameAndHasNoCharacterThatCannotBePrinted(t *testing.T) {
	value := "a\x1b[2J\x7f\u009b2J\u2028\u202e\U000e0001é\U0001f600\n"
	raw, err := json.Marshal([]string{value})
	if err != nil {
		t.Fatal(err)
	}
	got := string(Printable("\n" + string(raw)))
	if want := "\n" + `["a\u001b[2J\u007f\u009b2J\u2028\u202e` + "\U000e0001" + `é😀\n"]`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var back []string
	if err := json.Unmarshal([]byte(got), &back); err != nil || len(back) != 1 || back[0] != value {
		t.Errorf("%q, %v", back, err)
	}
}
