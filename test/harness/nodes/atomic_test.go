package nodes

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAVolumeIsWrittenAsAKubeletDoes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "volume")
	write := func(files map[string]string) string {
		t.Helper()
		if err := WriteVolume(dir, files); err != nil {
			t.Fatal(err)
		}
		version, err := os.Readlink(filepath.Join(dir, dataLink))
		if err != nil {
			t.Fatal(err)
		}
		return version
	}
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err.Error()
		}
		return string(data)
	}
	first := write(map[string]string{"a": "1", "sub/b": "2"})
	if read("a") != "1" || read("sub/b") != "2" {
		t.Errorf("it shows %q and %q", read("a"), read("sub/b"))
	}
	if again := write(map[string]string{"a": "1", "sub/b": "2"}); again != first {
		t.Error("the same files are another version")
	}
	if second := write(map[string]string{"a": "3", "c": ""}); second == first || read("a") != "3" || read("c") != "" {
		t.Errorf("version %s after %s shows %q and %q", second, first, read("a"), read("c"))
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4 { // the version, ..data, a, c
		t.Errorf("what was there stays: %v, %v", entries, err)
	}
	write(nil)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("what was there stays: %v, %v", entries, err)
	}
	if err := WriteVolume(dir, map[string]string{"../a": ""}); err == nil {
		t.Error("a file was written outside")
	}
}
