// Command boundaries checks which package of this module may know which, and
// what a binary may link. Run in the module's root; it prints each breach, and
// its exit status is 1 if there is one.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	breaches, err := run()
	if err != nil {
		fmt.Fprintf(os.Stderr, "boundaries: %v\n", err)
		os.Exit(1)
	}
	for _, breach := range breaches {
		fmt.Println(breach)
	}
	if len(breaches) > 0 {
		os.Exit(1)
	}
}

func run() ([]string, error) {
	// With the integration tests' files, so that nothing hides behind the tag.
	cmd := exec.Command("go", "list", "-tags=integration",
		"-json=ImportPath,Deps,TestImports,XTestImports", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting go list: %w", err)
	}
	packages, err := decode(out)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	return check(packages, rules), nil
}

func decode(list io.Reader) ([]goPackage, error) {
	var packages []goPackage
	decoder := json.NewDecoder(list)
	for {
		var p goPackage
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages, nil
		case err != nil:
			return nil, err
		}
		packages = append(packages, p)
	}
}
