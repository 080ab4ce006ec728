package source

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/health"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// parse reads a file: operator resources, or a reporter's output.
func (f Files) parse(data []byte) ([]view.Target, error) {
	data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\ufeff")))
	switch {
	case len(data) == 0:
		return nil, errors.New("is empty")
	case bytes.HasPrefix(data, []byte{0x1f, 0x8b}), len(data) > 262 && string(data[257:262]) == "ustar":
		return nil, errors.New("is an archive: unpack it, and name the folder")
	}
	if line := lastArray(data); line != nil && !worthParsing(data) {
		entries, err := health.DecodeMessage(string(line))
		if err != nil {
			return nil, fmt.Errorf("the last line of a reporter's --output: %w", err)
		}
		return []view.Target{view.Output(f.Target, f.Node, entries)}, nil
	}
	targets, err := resources(data)
	if err == nil && len(targets) == 0 {
		err = fmt.Errorf("%w: expected an object named %s of a kind of %s/v1 (%s), a List of such, or the output of a reporter's --output",
			ErrNothing, operatorcr.Name, operatorcr.Group, kindNames())
	}
	return targets, err
}

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

// resources are those of the documents that matter, in Lists, too. With an error
// come those before it.
func resources(data []byte) ([]view.Target, error) {
	var targets []view.Target
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for n := 1; ; n++ {
		var document any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return targets, nil
		}
		if err != nil {
			return targets, fmt.Errorf("document %d is neither YAML nor JSON: %w", n, err)
		}
		object, _ := document.(map[string]any)
		items, isList := object["items"].([]any)
		if !isList {
			items = []any{object}
		}
		listKind, _ := object["kind"].(string)
		listVersion, _ := object["apiVersion"].(string)
		for _, item := range items {
			fields, _ := item.(map[string]any)
			if fields == nil {
				continue
			}
			o := unstructured.Unstructured{Object: fields}
			kind, version := o.GetKind(), o.GetAPIVersion()
			if isList && kind == "" { // the items of a typed list need not repeat it
				kind, version = strings.TrimSuffix(listKind, "List"), listVersion
			}
			target := operatorcr.OfKind(kind).Plural
			if target != "" && strings.HasPrefix(version, operatorcr.Group+"/") && o.GetName() == operatorcr.Name {
				targets = append(targets, view.Read(target, &o))
			}
		}
	}
}
