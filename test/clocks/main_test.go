//go:build integration

package clocks

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kms-health/kms-health/test/operator/fixture"
)

var aheadFlag = flag.String("ahead", "", "how far the clocks of nodes are ahead, such as 20m,-6h; "+
	"each node has an API server, beside one whose clock is right")

// ahead are the errors of the clocks, one for each node with a wrong clock.
var ahead []time.Duration

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	if *aheadFlag == "" {
		return m.Run()
	}
	for text := range strings.SplitSeq(*aheadFlag, ",") {
		by, err := time.ParseDuration(text)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		ahead = append(ahead, by)
	}
	fixture.NodeNames = fixture.NodeNames[:1]
	return fixture.RunEncryptedTests(m)
}
