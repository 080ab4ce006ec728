package contract

import (
	"slices"
	"testing"
)

func TestUserIsReadAsItWasWritten(t *testing.T) {
	for text, u := range map[string]User{
		"0:0 groups 0 DAC_OVERRIDE":         Root,
		"0:0 groups 0":                      {Groups: []int64{0}},
		"65534:65534 groups 65534 1000":     {UID: 65534, GID: 65534, Groups: []int64{1000, 65534, 1000}},
		"7:0 groups 0 5 10 DAC_OVERRIDE":    {UID: 7, Groups: []int64{10, 5}, DACOverride: true},
		"1000:4294967294 groups 4294967294": {UID: 1000, GID: 1<<32 - 2},
	} {
		t.Run(text, func(t *testing.T) {
			if got := u.String(); got != text {
				t.Errorf("got %q", got)
			}
			read, ok := ParseUser(text)
			if !ok || read.String() != text || read.UID != u.UID || read.GID != u.GID || read.DACOverride != u.DACOverride ||
				!slices.Equal(read.Supplementary(), u.Supplementary()) {
				t.Errorf("got %+v, %v, want %+v", read, ok, u)
			}
		})
	}
}

func TestTextThatIsNoUserIsNotRead(t *testing.T) {
	for _, text := range []string{
		"", "root", "0:0", "0:0 groups ", "0:0 groups 1", "0:0 groups 0 2 1", "0:0 groups 0 0", "0 groups 0", "0:x groups 0",
		"0:0  groups 0", "0:0 groups 0 SYS_ADMIN", "0:0 groups 0 DAC_OVERRIDE DAC_OVERRIDE", " 0:0 groups 0",
	} {
		if u, ok := ParseUser(text); ok {
			t.Errorf("%q is %+v", text, u)
		}
	}
}
