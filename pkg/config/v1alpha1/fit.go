package v1alpha1

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kms-health/kms-health/pkg/contract"
)

// fitting changes a document so that it can be decoded into a type, and collects an error for each change.
// (encoding/json and sigs.k8s.io/json report only one value of a wrong type, and then no unknown field.)
type fitting struct {
	errs     []error
	mistyped []string // the paths of values of a wrong type
}

// forms has, by kind of Go type, an empty value of the type that the document must have, and the rule for an error.
var forms = map[reflect.Kind]struct {
	empty any
	rule  string
}{
	reflect.String: {"", "must be a string: numbers, and words such as y, no and off, need quotes"},
	reflect.Slice:  {[]any{}, "must be a list"},
	reflect.Struct: {map[string]any{}, "must be a mapping"},
	reflect.Map:    {map[string]any{}, "must be a mapping"},
}

// fit returns a value without the fields that a type does not have, and with an empty value in the place
// of each one of a wrong type.
func (f *fitting) fit(at *field.Path, value any, t reflect.Type) any {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil || t == reflect.TypeFor[Duration]() { // a Duration accepts any value; validation checks it
		return value
	}
	form := forms[t.Kind()]
	if reflect.TypeOf(value) != reflect.TypeOf(form.empty) {
		f.mistyped = append(f.mistyped, at.String())
		shown := contract.Printable(short(contract.Marshal(value)))
		f.errs = append(f.errs, fmt.Errorf("%s: Invalid value: %s: %s", at, shown, form.rule))
		return form.empty
	}
	switch value := value.(type) {
	case []any:
		for i := range value {
			value[i] = f.fit(at.Index(i), value[i], t.Elem())
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if t.Kind() == reflect.Map {
				value[name] = f.fit(at.Key(shownKey(name)), value[name], t.Elem())
			} else if of := fieldOf(t, name); of != nil {
				value[name] = f.fit(at.Child(name), value[name], of)
			} else {
				f.errs = append(f.errs, fmt.Errorf("unknown field %q", at.Child(short(name))))
				delete(value, name)
			}
		}
	}
	return value
}

// fieldOf returns the type of a struct's field by its name in a file, which is case-sensitive; nil if there is none.
func fieldOf(t reflect.Type, name string) reflect.Type {
	for _, f := range reflect.VisibleFields(t) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name && !f.Anonymous {
			return f.Type
		}
	}
	return nil
}

// within reports whether a path is at a value of a wrong type, or below it. There, validation's errors
// are about the empty value that replaced it.
func (f *fitting) within(path string) bool {
	return slices.ContainsFunc(f.mistyped, func(mistyped string) bool {
		below, found := strings.CutPrefix(path, mistyped)
		return found && (below == "" || below[0] == '.' || below[0] == '[')
	})
}

// shownKey returns a key of a mapping as it is shown in an error's path.
func shownKey(key string) string { return strings.Trim(strconv.Quote(short(key)), `"`) }
