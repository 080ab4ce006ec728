package render

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
)

// Options of the `render` command: an Input whose bytes are in files. An empty path is
// that of no file, and filewatch.Stdin is Stdin, for one of them.
type Options struct {
	Input
	EncryptionConfigFile, PodFile, APIServerFile, CAFile string

	Stdin io.Reader
	// Folder is where to write the files that are made.
	Folder string
}

// Run makes the files, and prints the path of each with its note. problems are those found
// before: all that is missing is reported at once.
func (o Options) Run(out io.Writer, problems ...error) error {
	if o.Folder == "" {
		problems = append(problems, errors.New("--output-dir: is empty, must be the folder to write to"))
	}
	unreadable := len(problems)
	for _, f := range []struct {
		flag, path string
		data       *[]byte
	}{
		{"--encryption-config", o.EncryptionConfigFile, &o.EncryptionConfig},
		{"--pod", o.PodFile, &o.Pod},
		{"--apiserver", o.APIServerFile, &o.APIServer},
		{"--ca-file", o.CAFile, &o.CA},
	} {
		if f.path == "" {
			continue
		}
		content := filewatch.ReadOnce(f.path, o.Stdin, v1alpha1.MaxFileSize)
		if content.Err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", f.flag, content.Err))
		}
		*f.data = content.Data
	}
	if unreadable < len(problems) {
		return errors.Join(problems...)
	}
	files, err := Render(o.Input, problems...)
	if err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(o.Folder, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s: %s\n", path, f.Note); err != nil {
			return err
		}
	}
	return nil
}
