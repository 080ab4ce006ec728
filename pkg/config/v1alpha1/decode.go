package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DecodeReporter decodes, defaults and validates the reporter's file. On any error it
// returns nil and an error that holds all of them, one a line.
func DecodeReporter(data []byte) (*ReporterConfiguration, error) {
	return decode(data, ReporterKind, setDefaults, validate)
}

// DecodeOperator is DecodeReporter for the operator's file. The image stays
// empty where it is not set: it comes from the operator's environment.
func DecodeOperator(data []byte) (*OperatorConfiguration, error) {
	return decode(data, OperatorKind, setOperatorDefaults, validateOperator)
}

func decode[T any](data []byte, kind string, setDefaults func(*T), validate func(*T) field.ErrorList) (*T, error) {
	document, err := parse(data, kind)
	if err != nil {
		return nil, err
	}
	var r reader
	fields := r.mapping(nil, document, reflect.TypeFor[T]())
	if errs := checkKind(fields, kind); len(errs) > 0 {
		return nil, join(errs) // in another kind of file the other fields have another meaning
	}
	c := new(T)
	raw, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(raw, c)
	}
	if err != nil {
		return nil, err
	}
	setDefaults(c)
	errs := r.errs
	for _, e := range validate(c) {
		if !under(e.Field, r.errs) {
			errs = append(errs, e)
		}
	}
	if len(errs) > 0 {
		return nil, join(errs)
	}
	return c, nil
}

// otherFiles are kinds of files that are mistaken for one of this package's.
var otherFiles = map[string]string{
	ReporterKind: "; this is kms-health-reporter's file: kms-health-reporter --validate --config FILE",
	OperatorKind: "; this is kms-health-operator's file: kms-health-operator validate FILE",
	"EncryptionConfiguration": "; this is kube-apiserver's file, which kms-health-operator render reads by " +
		"--encryption-config",
	"Config":    "; this is a kubeconfig: destination.kubeconfig of the reporter's file names it",
	"ConfigMap": "; a program reads the file in its data; validate reads the ConfigMap itself, too",
}

func checkKind(fields map[string]any, kind string) (errs field.ErrorList) {
	found, _ := fields["kind"].(string)
	if other := otherFiles[found]; other != "" && found != kind {
		return field.ErrorList{field.Invalid(field.NewPath("kind"), found, "must be "+kind+other)}
	}
	for _, want := range []struct{ name, value string }{{"apiVersion", APIVersion}, {"kind", kind}} {
		switch got := fields[want.name]; got {
		case want.value:
		case nil:
			errs = append(errs, field.Required(field.NewPath(want.name), "must be "+want.value))
		default:
			errs = append(errs, field.Invalid(field.NewPath(want.name), short(got), "must be "+want.value))
		}
	}
	return errs
}

// under reports whether there is an error already in a field or around it: the result of
// validating a value that could not be decoded would be misleading.
func under(name string, errs field.ErrorList) bool {
	for _, e := range errs {
		rest, inside := strings.CutPrefix(name, e.Field)
		if inside && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// maxErrors bounds how many errors are reported: a file can hold thousands, and an
// error ends in a log.
const maxErrors = 50

func join(errs field.ErrorList) error {
	var all []error
	for _, e := range errs[:min(len(errs), maxErrors)] {
		all = append(all, e)
	}
	if more := len(errs) - maxErrors; more > 0 {
		all = append(all, fmt.Errorf("and %d more errors", more))
	}
	return errors.Join(all...)
}
