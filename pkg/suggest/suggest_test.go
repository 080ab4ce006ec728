package suggest

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestTheMostSimilarNameIsSuggested(t *testing.T) {
	names := []string{"interval", "checks", "plugins", "podSelector"}
	for word, want := range map[string]string{
		"intervall": "interval", "Plugins": "plugins", "podselector": "podSelector", "chekcs": "checks", "inter": "interval",
		"foo": "", "nonsense": "", "": "", strings.Repeat("x", 1<<20): "",
	} {
		if got := DidYouMean(word, names); want == "" && got != "" || want != "" && got != ` (did you mean "`+want+`"?)` {
			t.Errorf("%.20s: %q, want %q", word, got, want)
		}
	}
}

func TestFlagIsSuggestedWhereItIsUnknown(t *testing.T) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.Usage = func() {}
	fs.String("config", "", "")
	for arg, want := range map[string]string{
		"--confg=a": `unknown flag: --confg (did you mean "--config"?)`, "--something": "unknown flag: --something", "--config": "flag needs an argument: --config",
		"-x": "unknown shorthand flag: 'x' in -x",
	} {
		if err := Flag(fs.Parse([]string{arg}), []string{"--config"}); err == nil || err.Error() != want {
			t.Errorf("%s: %v", arg, err)
		}
	}
}
