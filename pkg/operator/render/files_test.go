package render

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFilesAreReadAndWritten(t *testing.T) {
	o := Options{Input: input(t, "kube-apiserver"), Folder: t.TempDir()}
	o.EncryptionConfig, o.CA = nil, nil
	o.EncryptionConfigFile, o.CAFile = "../../../test/testdata/encryption-config.yaml", "../../../test/testdata/ca.crt"
	o.PodFile = "../../../test/testdata/static-pod.yaml"
	var out bytes.Buffer
	if err := o.Run(&out); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		path, note, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if data, err := os.ReadFile(path); err != nil || len(data) == 0 || note == "" {
			t.Errorf("%q: %v", line, err)
		}
	}
	if _, err := os.Stat(filepath.Join(o.Folder, "host/config/config.yaml")); err != nil {
		t.Error(err)
	}
	o.PodFile = "missing"
	if err := o.Run(&out); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Error(err)
	}
}
