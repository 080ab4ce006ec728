package reporter

import (
	"encoding/json"
	"testing"
)

func TestLineHoldsNoCharacterThatCannotBePrinted(t *testing.T) {
	value := "a\x1b[2J\x7f\u009b2J\u2028\u202e\U000e0001é\U0001f600\n"
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	got := string(line(string(raw)))
	if want := `"a\u001b[2J\u007f\u009b2J\u2028\u202e\udb40\udc01é😀\n"` + "\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	var back string
	if err := json.Unmarshal([]byte(got), &back); err != nil || back != value {
		t.Errorf("%q, %v", back, err)
	}
}
