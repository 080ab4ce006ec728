package v1alpha1

import (
	"encoding/json"
	"fmt"
	"reflect"
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

var durationType = reflect.TypeFor[Duration]()

// UnmarshalJSON accepts any string: one that is no duration is found by validation.
func (d *Duration) UnmarshalJSON(data []byte) error {
	*d = Duration{}
	var s *string
	if err := json.Unmarshal(data, &s); err != nil || s == nil {
		return err
	}
	value, err := time.ParseDuration(*s)
	switch {
	case err != nil, *s == "0":
		d.text = *s
	case value == 0:
		d.text = "0s"
	default:
		d.Duration = value
	}
	return nil
}

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

// isOff reports whether a file has 0s.
func (d Duration) isOff() bool { return d.text == "0s" }

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
