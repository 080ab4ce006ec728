package source

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
)

// entry is a file of an archive; with a link, a symbolic one.
type entry struct{ name, text, link string }

// layout is what oc adm must-gather leaves, of two operator resources.
func layout(root string) []entry {
	scoped := root + "cluster-scoped-resources/operator.openshift.io/"
	return []entry{
		{name: root + "timestamp", text: "2026-05-08 14:30:00.123456789 +0200 CEST m=+0.101\n2026-05-08 14:50:00.1 +0200 CEST m=+1200.5\n"},
		{name: root + "event-filter.html", text: "<html>"},
		{name: scoped + "kubeapiservers/cluster.yaml", text: "---\n" + apiServer},
		{name: scoped + "authentications/cluster.yaml", text: "---\n" + auth},
		{name: root + "namespaces/openshift-kms-health/core/events.yaml", text: "kind: EventList\nitems: []\n"},
		{name: root + "namespaces/openshift-kms-health/pods/a/a/a/logs/current.log", text: strings.Repeat("log\n", 9999)},
	}
}

func pack(t *testing.T, zipped bool, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	to := io.Writer(&b)
	if zipped {
		z := gzip.NewWriter(&b)
		defer func() { _ = z.Close() }()
		to = z
	}
	w := tar.NewWriter(to)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: 0o600, Size: int64(len(e.text)), Typeflag: tar.TypeReg}
		if e.link != "" {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, e.link, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if z, ok := to.(*gzip.Writer); ok {
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestAnArchiveIsReadAsItsFolder(t *testing.T) {
	for _, root := range []string{"", "./", "inspect.local.1/", "must-gather.local.1/quay-io-release-sha256-0123/"} {
		files := map[string]string{}
		for _, e := range layout(root) {
			files[e.name] = e.text
		}
		fromFolder, err := read(in(t, files))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"authentications a", "kubeapiservers a"}, names(fromFolder)); diff != "" {
			t.Error(diff)
		}
		for _, zipped := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "must-gather.tar")
			packed := pack(t, zipped, layout(root)...)
			if err := os.WriteFile(path, packed, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{path, "-"} {
				taken, err := ReadFiles(name, bytes.NewReader(packed), now)
				if err != nil || len(taken.Notes) > 0 {
					t.Fatal(err, taken.Notes)
				}
				if diff := cmp.Diff(names(fromFolder), names(taken)); diff != "" || !taken.Now.Equal(fromFolder.Now) {
					t.Error(diff, taken.Now, fromFolder.Now)
				}
			}
		}
	}
}

// A must-gather whose reporters had all ended is not evaluated as of their last report.
func TestAMustGatherIsEvaluatedAsOfItsBeginning(t *testing.T) {
	for timestamp, want := range map[string]string{
		"2026-05-08 15:00:00.5 +0200 CEST m=+0.1\n2026-05-08 15:20:00 +0200 CEST m=+9\n": "13:00:00",
		"2026-05-08 16:00:00 +0300 +03 m=+0.1\n":                                         "13:00:00",
		"2026-05-08 12:00:00 +0000 UTC m=+0.1\n":                                         "12:34:50", // a report is later
		"yesterday\n":                                                                    "12:34:50",
		strings.Repeat("2026", 9999):                                                     "12:34:50",
		"":                                                                               "12:34:50",
	} {
		dir := in(t, map[string]string{"timestamp": timestamp, "cluster.yaml": apiServer})
		taken, err := read(dir)
		if got := taken.Now.UTC().Format(time.TimeOnly); err != nil || got != want {
			t.Errorf("%.60q: %s, %v", timestamp, got, err)
		}
	}
}

func TestHostileArchivesAreRefused(t *testing.T) {
	const ours = "cluster-scoped-resources/operator.openshift.io/openshiftapiservers/cluster.yaml"
	good := layout("")
	for name, tt := range map[string]struct {
		packed []byte
		want   string
	}{
		"a path out":            {pack(t, true, append(good, entry{name: "a/../../../etc/cron.d/x.yaml", text: "x"})...), `refused: the path of its file "a/../../../etc/cron.d/x.yaml" leads out of it`},
		"a path from the root":  {pack(t, true, append(good, entry{name: "/etc/x.yaml", text: "x"})...), `refused: the path of its file "/etc/x.yaml"`},
		"a link for a resource": {pack(t, true, append(good, entry{name: ours, link: "/etc/passwd"})...), "is a link; links are not followed"},
		"no tar in it":          {zipped(t, apiServer), "is not a tar or tar.gz of a folder"},
		"empty":                 {zipped(t, ""), "is not a tar or tar.gz of a folder"},
		"an empty tar":          {pack(t, true), "is not a tar or tar.gz of a folder"},
		"cut off":               {pack(t, true, append(good, entry{name: "z.log", text: "x"})...)[:420], "unexpected EOF"},
		"without a resource":    {pack(t, true, entry{name: "a/nodes.yaml", text: "kind: NodeList"}), "looked in 1 YAML and JSON files"},
		"a resource too large":  {pack(t, false, entry{name: ours, text: strings.Repeat("# operator.openshift.io/ OpenShiftAPIServer\n", maxFile/40)}), "is over 64 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadFiles("-", bytes.NewReader(tt.packed), now)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "standard input") {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	secret := filepath.Join(in(t, map[string]string{"newer.json": newer}), "newer.json")
	taken, err := ReadFiles("-", bytes.NewReader(pack(t, true, append(layout(""), entry{name: "x/cluster.yaml", link: secret})...)), now)
	dir := in(t, map[string]string{"cluster.yaml": apiServer})
	if err := os.Symlink(secret, filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	fromFolder, err2 := read(dir)
	for _, taken := range []*view.Snapshot{taken, fromFolder} {
		if err != nil || err2 != nil || taken.Now.Minute() == 44 || len(taken.Notes) != 1 || !strings.Contains(taken.Notes[0], "skipped: is a link") {
			t.Errorf("%v, %v, %s, %q", err, err2, taken.Now, taken.Notes)
		}
	}
}

func TestWarningsAreBoundedLinesOfText(t *testing.T) {
	entries := layout("")
	for i := range 300 {
		entries = append(entries, entry{name: fmt.Sprintf("%d/\x1b[2J\n\u202e.yaml", i), link: "\x1b]0;x\nerror: y"})
	}
	taken, err := ReadFiles("-", bytes.NewReader(pack(t, true, entries...)), now)
	if err != nil || len(taken.Notes) != maxNotes+1 || taken.Notes[maxNotes] != "and more such warnings" {
		t.Errorf("%v, %q", err, taken.Notes)
	}
	if text := strings.Join(taken.Notes, ""); strings.ContainsAny(text, "\x1b\n\u202e") {
		t.Errorf("%q", text)
	}
}

func TestAnArchiveIsBounded(t *testing.T) {
	big := entry{name: "a.log", text: strings.Repeat("\x00", 1<<20)}
	for name, tt := range map[string]struct {
		limits  limits
		entries []entry
		want    string
	}{
		"by its size":        {limits{bytes: 3 << 20, entries: 100}, []entry{big, big, big, big}, "unpacks to over 3 MiB"},
		"by a file's size":   {limits{bytes: 1 << 19, entries: 100}, []entry{{name: "cluster.yaml", text: big.text}}, "unpacks to over 0 MiB"},
		"by its files":       {limits{bytes: 9 << 20, entries: 2}, []entry{big, big, big}, "has over 2 files"},
		"and is read within": {limits{bytes: 9 << 20, entries: 4}, []entry{big, big, big}, ""},
	} {
		from := bufio.NewReader(bytes.NewReader(pack(t, true, tt.entries...)))
		err := walkArchive("x", from, tt.limits, func(f treeFile) error { _, err := f.read(); return err })
		if got := fmt.Sprint(err); tt.want == "" && err != nil || tt.want != "" && !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
