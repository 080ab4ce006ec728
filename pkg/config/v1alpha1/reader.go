package v1alpha1

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxElements bounds every list and every mapping, so that what is made of them is small.
// Most have a lower bound of their own.
const maxElements = 64

// reader compares a document with the type that it is decoded into. The decoders of JSON do
// not: they report one value of a wrong type only, and without its index in a list.
type reader struct{ errs field.ErrorList }

// rules are what a value must be to be decoded into a type.
var rules = map[reflect.Kind]string{
	reflect.String: "must be a string in quotes", reflect.Bool: "must be true or false", reflect.Slice: "must be a list",
	reflect.Map: "must be a mapping", reflect.Struct: "must be a mapping",
}

// value returns a value, or nil where it is not what its type requires.
func (r *reader) value(path *field.Path, v any, t reflect.Type) any {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	kind := t.Kind()
	if _, isString := v.(string); t == durationType && v != nil {
		if kind = reflect.String; !isString {
			v = short(v) // validation reports that it has no unit
		}
	}
	rule := rules[kind]
	switch v := v.(type) {
	case nil:
		return nil
	case yaml.MapSlice:
		if kind == reflect.Struct || kind == reflect.Map {
			return r.mapping(path, v, t)
		}
	case []any:
		if kind == reflect.Slice {
			return r.list(path, v, t.Elem())
		}
	case string:
		if kind == reflect.String {
			rule = textRule(v)
		}
		if rule == "" {
			return v
		}
	case bool:
		if kind == reflect.Bool {
			return v
		}
		rule += ": y, yes, on, n, no and off without quotes are booleans"
	}
	r.errs = append(r.errs, field.Invalid(path, short(v), rule))
	return nil
}

func (r *reader) list(path *field.Path, elements []any, t reflect.Type) any {
	values := []any{}
	if len(elements) > maxElements {
		r.errs = append(r.errs, field.TooMany(path, len(elements), maxElements))
		return values
	}
	for i, e := range elements {
		values = append(values, r.value(path.Index(i), e, t))
	}
	return values
}

// mapping returns the fields of a struct, or the entries of labels and other strings by name.
func (r *reader) mapping(path *field.Path, m yaml.MapSlice, t reflect.Type) map[string]any {
	values := map[string]any{}
	if len(m) > maxElements {
		if path == nil {
			path = field.NewPath("the file")
		}
		r.errs = append(r.errs, field.TooMany(path, len(m), maxElements))
		return values
	}
	for _, item := range m {
		name, _ := item.Key.(string)
		at, of := path.Child(printable(short(item.Key))), fieldOf(t, name)
		if t.Kind() == reflect.Map {
			at, of = path.Key(printable(short(item.Key))), t.Elem()
		}
		_, twice := values[name]
		switch {
		case textRule(name) != "":
			r.errs = append(r.errs, field.Invalid(at, short(item.Key), "a key must be a string that can be printed"))
		case of == nil:
			r.errs = append(r.errs, field.Forbidden(at, "unknown field"))
		case twice:
			r.errs = append(r.errs, field.Forbidden(at, "duplicate field"))
		case t.Kind() == reflect.Map && item.Value == any(""): // the value of a label
			values[name] = ""
		default:
			values[name] = r.value(at, item.Value, of)
		}
	}
	return values
}

// fieldOf returns the type of a struct's field, nil: it has none of that name.
func fieldOf(t reflect.Type, name string) reflect.Type {
	if t.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(t) {
			if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
				return f.Type
			}
		}
	}
	return nil
}
