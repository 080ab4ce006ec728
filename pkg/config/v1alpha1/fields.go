package v1alpha1

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkFields compares a parsed file with the type it is meant for, and reports
// every unknown field and every value of the wrong type, with path and value.
// (Decoders stop at the first, and name no path.) It returns what can be
// decoded: the same without the values of the wrong type.
func checkFields(path *field.Path, value any, t reflect.Type) (any, field.ErrorList) {
	if value == nil {
		return nil, nil // a field without a value is a field left out
	}
	wrong := func(want string) (any, field.ErrorList) {
		return nil, field.ErrorList{field.TypeInvalid(path, short(value), fmt.Sprintf("must be %s, is %s", want, kindOf(value)))}
	}
	if t == reflect.TypeFor[metav1.Duration]() {
		s, ok := value.(string)
		if !ok {
			return wrong(`a duration with its unit, like "30s"`)
		}
		if _, err := time.ParseDuration(s); err != nil {
			return nil, field.ErrorList{field.Invalid(path, short(s), `must be a duration with its unit, like "30s"`)}
		}
		return value, nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return checkFields(path, value, t.Elem())
	case reflect.Struct:
		m, ok := value.(map[string]any)
		if !ok {
			return wrong("a mapping")
		}
		return checkStruct(path, m, t)
	case reflect.Slice:
		s, ok := value.([]any)
		if !ok {
			return wrong("a list")
		}
		kept := make([]any, len(s))
		var all, errs field.ErrorList
		for i := range s {
			kept[i], errs = checkFields(path.Index(i), s[i], t.Elem())
			all = append(all, errs...)
			if s[i] == nil {
				all = append(all, field.Required(path.Index(i), "an element of a list must have a value"))
			}
		}
		return kept, all
	case reflect.Map: // of strings
		m, ok := value.(map[string]any)
		if !ok {
			return wrong("a mapping")
		}
		kept := make(map[string]any, len(m))
		var all field.ErrorList
		for _, key := range slices.Sorted(maps.Keys(m)) {
			v, errs := checkFields(path.Key(key), m[key], t.Elem())
			all = append(all, errs...)
			if v == nil && len(errs) == 0 {
				v = ""
			}
			kept[key] = v
		}
		return kept, all
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			return wrong("true or false")
		}
		return value, nil
	case reflect.String:
		if _, ok := value.(string); !ok {
			return wrong("a string in quotes")
		}
		return value, nil
	default:
		panic(fmt.Sprintf("configuration types hold no %s yet", t))
	}
}

func checkStruct(path *field.Path, m map[string]any, t reflect.Type) (any, field.ErrorList) {
	known := map[string]reflect.Type{}
	addFields(known, t)
	kept := make(map[string]any, len(m))
	var all field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(m)) { // maps have no order, errors should
		fieldType, ok := known[name]
		if !ok {
			all = append(all, unknownField(child(path, name), m[name], name, known))
			continue
		}
		value, errs := checkFields(child(path, name), m[name], fieldType)
		all = append(all, errs...)
		if value != nil {
			kept[name] = value
		}
	}
	return kept, all
}

func unknownField(path *field.Path, value any, name string, known map[string]reflect.Type) *field.Error {
	detail := "unknown field"
	for candidate := range known {
		if strings.EqualFold(candidate, name) {
			detail += fmt.Sprintf(", did you mean %q?", candidate)
		}
	}
	return field.Invalid(path, short(value), detail)
}

// addFields collects a struct's fields by their names in the file.
func addFields(known map[string]reflect.Type, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			addFields(known, f.Type)
			continue
		}
		known[name] = f.Type
	}
}

// kindOf names what a parsed value is.
func kindOf(value any) string {
	switch value.(type) {
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	default:
		return "a number"
	}
}

// short renders a value for an error: enough to find it in the file.
func short(value any) string {
	const most = 80
	text, isString := value.(string)
	if !isString {
		raw, err := json.Marshal(value)
		if err != nil {
			return fmt.Sprint(value)
		}
		text = string(raw)
	}
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// child also serves the root of the file, which has no path.
func child(path *field.Path, name string) *field.Path {
	if path == nil {
		return field.NewPath(name)
	}
	return path.Child(name)
}
