package source

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

// parse reads a file: operator resources, or a reporter's output.
func (r *reading) parse(data []byte) ([]view.Target, error) {
	data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\ufeff")))
	switch {
	case len(data) == 0:
		return nil, errors.New("is empty")
	case slices.ContainsFunc(otherArchives, func(magic string) bool { return bytes.HasPrefix(data, []byte(magic)) }):
		return nil, errors.New("is an archive of a kind that cannot be read here: name a tar or tar.gz, or unpack it, and name the folder")
	}
	if line := lastArray(data); line != nil && !hasResource(data) {
		entries, err := contract.DecodeMessage(string(line))
		if err != nil {
			return nil, fmt.Errorf("the last line of a reporter's --output: %w", err)
		}
		return []view.Target{view.Output(r.Target, r.Node, entries)}, nil
	}
	targets, err := r.resources(data)
	if err == nil && len(targets) == 0 && !r.Objects {
		err = fmt.Errorf("%w: expected an object named %s of a kind of %s/v1 (%s), a List of such, or the output of a reporter's --output",
			ErrNothing, contract.OperatorObject, contract.OperatorGroup, kindNames())
	}
	return targets, err
}

// otherArchives are the first bytes of zip, xz, zstd and bzip2.
var otherArchives = []string{"PK\x03\x04", "\xfd7zXZ\x00", "\x28\xb5\x2f\xfd", "BZh"}

// lastArray is the last line of a reporter's output; a pod's log has other lines too. Nil:
// the file is not a reporter's output.
func lastArray(data []byte) []byte {
	if data[0] == '[' && data[len(data)-1] == ']' && !bytes.Contains(data, []byte("]\n[")) {
		return data // whole, maybe over several lines
	}
	var last []byte
	for line := range bytes.Lines(data) {
		if bytes.HasPrefix(line, []byte("[")) {
			last = bytes.TrimSpace(line)
		}
	}
	return last
}

// resources are the operator resources of a file. With an error come those before it.
// Other objects are kept, if wanted.
func (r *reading) resources(data []byte) (targets []view.Target, err error) {
	err = each(data, func(o *unstructured.Unstructured) {
		target := contract.ResourceOfKind(o.GetKind()).Plural
		own := o.GetKind() == contract.KMSHealths.Kind && strings.HasPrefix(o.GetAPIVersion(), contract.KMSHealths.Group+"/")
		if own {
			target = contract.ResourceFor(contract.KMSHealths.Plural, o.GetName()).TargetName()
		}
		if own || target != "" && strings.HasPrefix(o.GetAPIVersion(), contract.OperatorGroup+"/") && o.GetName() == contract.OperatorObject {
			targets = append(targets, view.Read(target, o))
		} else if r.Objects {
			r.Gathered.keep(o)
		}
	})
	return targets, err
}

// each calls take for the objects of a file: those of its documents, and of Lists in them.
func each(data []byte, take func(*unstructured.Unstructured)) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for n := 1; ; n++ {
		var raw stdjson.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return nil
		}
		var document any
		if err == nil && len(raw) > 0 {
			err = json.Unmarshal(raw, &document) // with whole numbers as in objects of a client
		}
		if err != nil {
			return fmt.Errorf("document %d is neither YAML nor JSON: %w", n, err)
		}
		object, _ := document.(map[string]any)
		items, isList := object["items"].([]any)
		if !isList {
			items = []any{object}
		}
		listKind, _ := object["kind"].(string)
		for _, item := range items {
			fields, _ := item.(map[string]any)
			if fields == nil {
				continue
			}
			o := &unstructured.Unstructured{Object: fields}
			if isList && o.GetKind() == "" { // the items of a typed list need not repeat it
				fields["kind"], fields["apiVersion"] = strings.TrimSuffix(listKind, "List"), object["apiVersion"]
			}
			take(o)
		}
	}
}
