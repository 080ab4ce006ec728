// Package version returns which version a program was built from, and its FIPS 140-3 mode.
package version

import (
	"crypto/fips140"
	"fmt"
	"runtime"
)

// Version is set at build time, by -ldflags "-X …/pkg/version.Version=v1.2.3".
var Version = "unknown"

// Text is what a program prints for --version, after its name.
func Text() string {
	return fmt.Sprintf("%s (%s, %s/%s, FIPS 140-3: %s)", Version, runtime.Version(), runtime.GOOS, runtime.GOARCH, FIPS())
}

// FIPS returns the mode of Go's cryptographic module: "off"; "on", if the module's approved algorithms are preferred
// and its self-tests have passed; or "only", if all others fail. The mode comes from the build (GOFIPS140) and the
// environment variable GODEBUG (fips140).
func FIPS() string {
	switch {
	case fips140.Enforced():
		return "only"
	case fips140.Enabled():
		return "on"
	default:
		return "off"
	}
}

// LabelValues are those of a program's metric …_build_info, in the order of its row in package contract. The module
// with the version "v1.0.0" has a certificate; "latest" is the module of the Go release, which has none.
func LabelValues() []string { return []string{Version, runtime.Version(), FIPS(), fips140.Version()} }
