package main

import (
	"fmt"
	"runtime"
)

// version is set at build time, by -ldflags "-X main.version=…".
var version = "unknown"

func versionLine() string {
	return fmt.Sprintf("kms-health-operator %s (%s, %s/%s)", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
