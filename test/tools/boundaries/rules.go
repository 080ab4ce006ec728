package main

import (
	"fmt"
	"slices"
	"strings"
)

const module = "github.com/kms-health/kms-health"

// contract is what everybody may know: no rule forbids it.
const contract = module + "/pkg/contract"

// rule forbids some packages to know others, directly or by way of a third.
type rule struct {
	of      string   // the packages it is about: this one and those below it
	notOf   string   // except this one and those below it
	forbids []string // this package and those below it
	allows  []string // except these and those below them
	// testsMay leaves the packages' own tests out of it.
	testsMay bool
	// mustExist is a breach of its own when there is no such package, lest a
	// renamed one is checked no more.
	mustExist bool
}

var rules = []rule{
	// Programs know libraries, not the other way round.
	{of: module, notOf: module + "/cmd", forbids: []string{module + "/cmd"}},

	// The two halves meet only in the contract and the configuration.
	{of: module + "/pkg/operator", forbids: []string{module + "/pkg/reporter"}},
	{of: module + "/pkg/reporter", forbids: []string{module + "/pkg/operator"}},

	// What both import, and others may import, imports nothing of this project.
	{of: module + "/pkg/config", forbids: []string{module}, allows: []string{module + "/pkg/config"}},
	{of: contract, forbids: []string{module}},

	{of: module + "/bindata", forbids: []string{module}, allows: []string{module + "/bindata"}},

	// What a reporter's objects are depends on no controller, and `render` has none.
	{of: module + "/pkg/operator/objects", forbids: []string{module + "/pkg/operator"}, allows: []string{
		module + "/pkg/operator/objects", module + "/pkg/operator/tlsprofile",
	}},
	{of: module + "/pkg/operator/render", forbids: []string{
		module + "/pkg/operator/apiserver", module + "/pkg/operator/status", module + "/pkg/operator/source",
	}},

	// So do readers of reports the roll-up.
	{of: module + "/pkg/applybody", forbids: []string{module}, allows: []string{module + "/pkg/applybody"}},
	{
		of: module + "/pkg/operatorcr", forbids: []string{module},
		allows: []string{module + "/pkg/applybody", module + "/pkg/operatorcr"},
	},
	{
		of: module + "/pkg/rollup", forbids: []string{module},
		allows: []string{module + "/pkg/applybody", module + "/pkg/operatorcr", module + "/pkg/rollup"},
	},

	{of: module + "/pkg/serverclock", forbids: []string{module}, allows: []string{module + "/pkg/serverclock"}},

	// An admin's tool judges by itself: of the operator only its file, as the operator does.
	{of: module + "/cmd/kubectl-kms_health", mustExist: true, forbids: []string{
		module + "/pkg/operator", module + "/pkg/reporter",
	}},

	// The controllers are client-go's informers and work queues. A second framework beside
	// them would be read and updated for a part of what it does.
	{of: module, forbids: []string{"sigs.k8s.io/controller-runtime"}},

	// What serves the tests never reaches the product.
	{of: module, notOf: module + "/test", forbids: []string{module + "/test"}, testsMay: true},

	// The reporter sits beside every API server: it stays small, and starts fast.
	{of: module + "/cmd/kms-health-reporter", mustExist: true, testsMay: true, forbids: []string{
		module + "/pkg/operator",
		"github.com/openshift/client-go",
		"k8s.io/api",
		"k8s.io/apiserver",
		"k8s.io/apimachinery/pkg/apis/meta/v1",
		"k8s.io/client-go",
	}},
}

// goPackage is what `go list -json` reports of a package.
type goPackage struct {
	ImportPath   string
	Deps         []string // all it links
	TestImports  []string
	XTestImports []string
}

// check returns each breach of a rule, as a line to read.
func check(packages []goPackage, rules []rule) []string {
	var breaches []string
	for _, r := range rules {
		applied := false
		for _, p := range packages {
			if !below(p.ImportPath, r.of) || r.notOf != "" && below(p.ImportPath, r.notOf) {
				continue
			}
			applied = true
			for _, dep := range p.Deps {
				if r.forbidden(dep) {
					breaches = append(breaches, fmt.Sprintf("%s must not know %s", p.ImportPath, dep))
				}
			}
			if r.testsMay {
				continue
			}
			for _, dep := range slices.Concat(p.TestImports, p.XTestImports) {
				if r.forbidden(dep) {
					breaches = append(breaches, fmt.Sprintf("%s must not know %s, in its tests neither", p.ImportPath, dep))
				}
			}
		}
		if r.mustExist && !applied {
			breaches = append(breaches, fmt.Sprintf("%s: no such package, so its rule checks nothing", r.of))
		}
	}
	slices.Sort(breaches)
	return slices.Compact(breaches)
}

func (r rule) forbidden(path string) bool {
	if below(path, contract) {
		return false
	}
	in := func(prefix string) bool { return below(path, prefix) }
	return slices.ContainsFunc(r.forbids, in) && !slices.ContainsFunc(r.allows, in)
}

// below returns whether path is prefix, or a package in its folder.
func below(path, prefix string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}
