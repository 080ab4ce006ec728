package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Duration is a time.Duration, written with its unit: 500ms, 30s, 5m.
type Duration struct {
	time.Duration
	// text is what the file has, where that is zero or no duration. So zero and absent
	// differ, and what is wrong is reported by validation, with its path.
	text string
}

// UnmarshalJSON accepts any value: one that is no duration is found by validation.
func (d *Duration) UnmarshalJSON(data []byte) error {
	text := string(data)
	if text == "null" {
		return nil
	}
	if s, err := strconv.Unquote(text); err == nil {
		text = s
	}
	switch value, err := time.ParseDuration(text); {
	case err != nil, text == "0":
		*d = Duration{text: text}
	case value == 0:
		*d = off
	default:
		*d = Duration{Duration: value}
	}
	return nil
}

// off is a duration of 0s in a file.
var off = Duration{text: "0s"}

// MarshalJSON writes it as it is read.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.Duration.String()) }

// Equal compares the values.
func (d Duration) Equal(other Duration) bool { return d.Duration == other.Duration }

// setDefault sets a duration that the file does not have.
func (d *Duration) setDefault(value time.Duration) {
	if *d == (Duration{}) {
		d.Duration = value
	}
}

// between checks that a text is a duration within bounds.
func between(path *field.Path, d Duration, low, high time.Duration) field.ErrorList {
	if d.text == "" && d.Duration >= low && d.Duration <= high {
		return nil
	}
	return field.ErrorList{field.Invalid(path, d.shown(), fmt.Sprintf("must be a duration with its unit, from %s to %s",
		low, high))}
}

func (d Duration) shown() string {
	if d.text != "" {
		return short(d.text)
	}
	return d.String()
}
