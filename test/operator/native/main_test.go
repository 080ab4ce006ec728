//go:build integration

package native

import (
	"os"
	"testing"

	"github.com/kms-health/kms-health/test/operator/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.RunTests(m)) }
