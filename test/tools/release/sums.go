package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const sumsFile = "SHA256SUMS"

// digest is a file's SHA-256.
func digest(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// writeSums writes what `sha256sum -c` reads.
func (r *release) writeSums() error {
	entries, err := os.ReadDir(r.out) // in the order of their names
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, e := range entries {
		sum, err := digest(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s  %s\n", sum, e.Name())
	}
	return os.WriteFile(filepath.Join(r.out, sumsFile), []byte(b.String()), 0o644)
}
