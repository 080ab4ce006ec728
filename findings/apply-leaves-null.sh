#!/usr/bin/env bash
# structured-merge-diff v6.4.2, the merge of Server-Side Apply: an apply that removes the last entry of a list leaves
# `null` in the object, if another manager's update created the list.
#
# Manager X updates the object with condition A, manager Y applies B, and X updates without A: B is left. Then Y applies
# without B, which should remove it. The result is conditions: null, because X still owns the list. A CRD's schema
# refuses null (422), so the last condition stays until somebody replaces the object. If Y created the list, the same
# apply removes it.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"fmt"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

const schema = `types:
- name: object
  map:
    fields:
    - name: name
      type: {scalar: string}
    - name: conditions
      type:
        list:
          elementType:
            map:
              fields:
              - name: type
                type: {scalar: string}
          elementRelationship: associative
          keys: [type]
`

type oneVersion struct{}

func (oneVersion) Convert(o *typed.TypedValue, _ fieldpath.APIVersion) (*typed.TypedValue, error) { return o, nil }
func (oneVersion) IsMissingVersionError(error) bool                                              { return false }

type step struct{ manager, object string }

func run(what string, steps ...step) {
	parser, err := typed.NewParser(schema)
	if err != nil {
		panic(err)
	}
	object := func(text string) *typed.TypedValue {
		o, err := parser.Type("object").FromYAML(typed.YAMLObject(text))
		if err != nil {
			panic(err)
		}
		return o
	}
	updater := (&merge.UpdaterBuilder{Converter: oneVersion{}}).BuildUpdater()
	live, managers := object("{name: x}"), fieldpath.ManagedFields{}
	for _, s := range steps {
		next := live
		if s.manager == "ours" {
			next, managers, err = updater.Apply(live, object(s.object), "v1", managers, s.manager, false)
		} else {
			next, managers, err = updater.Update(live, object(s.object), "v1", managers, s.manager)
		}
		if err != nil {
			panic(err)
		}
		if next != nil { // nil: nothing changed
			live = next
		}
	}
	fmt.Printf("%s: %s\n", what, value.ToString(live.AsValue()))
}

func main() {
	const none, a, b, both = "{name: x}", "{name: x, conditions: [{type: A}]}", "{name: x, conditions: [{type: B}]}",
		"{name: x, conditions: [{type: A}, {type: B}]}"
	run("another manager made the list", step{"other", a}, step{"ours", b}, step{"other", b}, step{"ours", none})
	run("ours made the list", step{"ours", b}, step{"other", both}, step{"other", b}, step{"ours", none})
}
GO
go mod init finding >/dev/null 2>&1
go get sigs.k8s.io/structured-merge-diff/v6@v6.4.2 >/dev/null 2>&1
got=$(go run -mod=mod . 2>/dev/null)
want='another manager made the list: name="x"conditions=null
ours made the list: name="x"'
if [[ $got != "$want" ]]; then echo "changed: got $got, want $want" >&2; exit 1; fi
echo "as described: $got"
