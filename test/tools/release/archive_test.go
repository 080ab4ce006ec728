package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

var packed = []file{
	{name: "kms-health-reporter", content: []byte("\x7fELF"), executable: true},
	{name: "LICENSE", content: []byte("text\n")},
	{name: "completion/a.bash", content: nil},
}

func archived(t *testing.T, name string, files []file, at time.Time) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := writeArchive(path, files, at); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestEqualFilesGiveEqualArchives(t *testing.T) {
	at := time.Date(2026, 11, 23, 2, 23, 38, 0, time.UTC)
	reversed := []file{packed[2], packed[1], packed[0]}
	elsewhere := at.In(time.FixedZone("", 5*3600+45*60)).Add(300 * time.Millisecond)
	for _, name := range []string{"a.tar.gz", "a.zip"} {
		want := archived(t, name, packed, at)
		old := syscall.Umask(0o077)
		got := archived(t, name, reversed, elsewhere)
		syscall.Umask(old)
		if !bytes.Equal(want, got) {
			t.Errorf("%s depends on the order of its files, the time zone or the umask", name)
		}
	}
}

func TestAnArchiveHasFixedOwnersModesAndTimes(t *testing.T) {
	at := time.Date(2026, 11, 23, 2, 23, 38, 0, time.UTC)
	compressed, err := gzip.NewReader(bytes.NewReader(archived(t, "a.tar.gz", packed, at)))
	if err != nil {
		t.Fatal(err)
	}
	if compressed.Name != "" || !compressed.ModTime.IsZero() {
		t.Errorf("the gzip header has name %q and time %s", compressed.Name, compressed.ModTime)
	}
	in := tar.NewReader(compressed)
	var names []string
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		want := int64(0o644)
		if h.Name == "kms-health-reporter" {
			want = 0o755
		}
		if h.Mode != want || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || !h.ModTime.Equal(at) {
			t.Errorf("%s: mode %o, owner %d:%d %s, time %s", h.Name, h.Mode, h.Uid, h.Gid, h.Uname, h.ModTime)
		}
	}
	if len(names) != 3 || names[0] != "LICENSE" || names[2] != "kms-health-reporter" {
		t.Errorf("files %v are not sorted", names)
	}
	raw := archived(t, "a.zip", packed, at)
	zipped, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range zipped.File {
		if !f.Modified.Equal(at) || f.Name == "kms-health-reporter" && f.Mode() != 0o755 {
			t.Errorf("%s: mode %o, time %s", f.Name, f.Mode(), f.Modified)
		}
	}
}

func TestAnArchiveHasNoFileTwice(t *testing.T) {
	if err := writeArchive(filepath.Join(t.TempDir(), "a.tar.gz"), append(packed, packed[0]), time.Now()); err == nil {
		t.Error("no error")
	}
}
