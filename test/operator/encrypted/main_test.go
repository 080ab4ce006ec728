//go:build integration

package encrypted

import (
	"os"
	"testing"

	"github.com/kms-health/kms-health/test/operator/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.RunEncryptedTests(m)) }
