package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	strictjson "sigs.k8s.io/json"

	"github.com/kms-health/kms-health/pkg/contract"
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
	document, errs, err := parse(data, kind)
	if err != nil {
		return nil, err
	}
	if wrong := checkKind(document, kind); len(wrong) > 0 {
		return nil, errors.Join(wrong...) // in another kind of file the other fields have another meaning
	}
	c := new(T)
	unknown, err := strictjson.UnmarshalStrict(document, c)
	if err != nil {
		errs = append(errs, typeError(err))
	}
	errs = append(errs, unknown...)
	setDefaults(c)
	for _, invalid := range validate(c) {
		// What is missing may be the value of the wrong type.
		if err == nil || invalid.Type != field.ErrorTypeRequired {
			errs = append(errs, invalid)
		}
	}
	if more := len(errs) - maxErrors; more > 0 {
		errs = append(errs[:maxErrors], fmt.Errorf("and %d more errors", more))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return c, nil
}

// maxErrors bounds how many errors are reported: a file can hold thousands, and an
// error ends in a log.
const maxErrors = 50

// typeRules are what a value must be to be decoded into a type.
var typeRules = map[reflect.Kind]string{
	reflect.String: "must be a string: numbers, and words such as y, no and off, need quotes",
	reflect.Bool:   "must be true or false", reflect.Slice: "must be a list",
	reflect.Map: "must be a mapping", reflect.Struct: "must be a mapping",
}

// typeError explains the first value of a wrong type, by its path without indices.
func typeError(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return err
	}
	if wrong.Field == "" {
		return errors.New("the file must be a mapping, with apiVersion and kind")
	}
	return field.TypeInvalid(field.NewPath(wrong.Field), wrong.Value, typeRules[wrong.Type.Kind()])
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

func checkKind(document []byte, kind string) (errs []error) {
	var found TypeMeta
	if err := json.Unmarshal(document, &found); err != nil {
		return []error{typeError(err)}
	}
	if other := otherFiles[found.Kind]; other != "" && found.Kind != kind {
		return []error{field.Invalid(field.NewPath("kind"), found.Kind, "must be "+kind+other)}
	}
	for _, f := range []struct{ name, got, want string }{
		{"apiVersion", found.APIVersion, APIVersion}, {"kind", found.Kind, kind},
	} {
		if f.got != f.want {
			errs = append(errs, field.Invalid(field.NewPath(f.name), short(f.got), "must be "+f.want))
		}
	}
	return errs
}

// mostShown bounds how much of a value an error shows, in bytes.
const mostShown = 80

// notShown stands for a value that may hold a password.
const notShown = "(not shown)"

// short renders a value for an error: enough to find it in the file. A URL may have a user
// and password, and may stand in the wrong field; one that cannot be parsed may have them anywhere,
// and an encoded one may hide them.
func short(text string) string {
	secret := strings.Contains(text, "@") || strings.Contains(text, "://") && strings.ContainsAny(text, "%?#")
	if secret && !strings.HasPrefix(text, "unix://") {
		return notShown
	}
	return contract.Cut(text, mostShown)
}
