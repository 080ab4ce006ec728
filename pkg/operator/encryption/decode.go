package encryption

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// maxSize is what a Secret can hold, in bytes (MaxSecretSize of k8s.io/api/core/v1).
const maxSize = 1 << 20

// file is the part of an EncryptionConfiguration that is read:
// k8s.io/apiserver/pkg/apis/apiserver/v1 without the fields for keys. (That
// package would also link tracing and all that it needs.)
type file struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Resources  []entry `json:"resources"`
}

// entry is a list of resources and how they are encrypted: the first provider
// encrypts, and all decrypt.
type entry struct {
	Resources []string `json:"resources"`
	Providers []struct {
		KMS *kms `json:"kms"`
	} `json:"providers"`
}

type kms struct {
	APIVersion string  `json:"apiVersion"`
	Name       string  `json:"name"`
	Endpoint   string  `json:"endpoint"`
	Timeout    *string `json:"timeout"`
}

// kinds are the types by which kube-apiserver accepts the file. The second is an
// old error of its documentation (register.go of the types' package).
var kinds = map[[2]string]bool{
	{"apiserver.config.k8s.io/v1", "EncryptionConfiguration"}: true,
	{"v1", "EncryptionConfig"}:                                true,
}

// decode reads a file as kube-apiserver does: JSON as JSON, anything else
// as YAML, of which the first document counts; names of fields are
// case-sensitive, unknown ones are skipped, and of duplicates the last counts.
// Its errors consist of fixed text, field names of file, and numbers.
func decode(data []byte) (*file, error) {
	if len(data) > maxSize {
		return nil, fmt.Errorf("is %d bytes, must be at most %d", len(data), maxSize)
	}
	if !stdjson.Valid(data) {
		converted, err := yaml.YAMLToJSON(data)
		if err != nil {
			return nil, fmt.Errorf("is neither YAML nor JSON%s", lineOf(err))
		}
		data = converted
	}
	if string(data) == "null" { // the result of an empty YAML file, also with comments
		return nil, errors.New("is empty")
	}
	f := &file{}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, errors.New(misfit(err))
	}
	if !kinds[[2]string{f.APIVersion, f.Kind}] {
		return nil, errors.New("has another apiVersion and kind than apiserver.config.k8s.io/v1, EncryptionConfiguration")
	}
	if len(f.Resources) == 0 {
		return nil, errors.New("has no resources")
	}
	return f, nil
}

// usesKMS reports whether a KMS plugin encrypts, or decrypts, a resource: the entries that name it count,
// else those for its group, else those for all
// (transformerFromOverrides in k8s.io/apiserver/pkg/server/options/encryptionconfig). A name
// may end in the dot before the empty name of the core group.
func (f *file) usesKMS(resource schema.GroupResource) bool {
	for _, name := range []schema.GroupResource{
		resource, {Group: resource.Group, Resource: "*"}, {Group: "*", Resource: "*"},
	} {
		named, uses := false, false
		for _, e := range f.Resources {
			if !slices.ContainsFunc(e.Resources, func(r string) bool { return schema.ParseGroupResource(r) == name }) {
				continue
			}
			named = true
			for _, p := range e.Providers {
				uses = uses || p.KMS != nil
			}
		}
		if named {
			return uses
		}
	}
	return false
}

// yamlLine is the beginning of a parser's error with a line number. The rest may quote
// the file, for example a key's value that looks like an alias.
var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

func lineOf(err error) string {
	if found := yamlLine.FindStringSubmatch(err.Error()); found != nil {
		return ", near line " + found[1]
	}
	return ""
}

// misfit returns which field has a value of the wrong type. The decoder's own error
// quotes numbers.
func misfit(err error) string {
	var wrong *stdjson.UnmarshalTypeError
	switch {
	case !errors.As(err, &wrong):
		return "cannot be decoded"
	case wrong.Field == "":
		return "is not a mapping"
	}
	return fmt.Sprintf("has a value of the wrong type in %s", wrong.Field)
}
