package main

import (
	"slices"
	"testing"
)

func TestCheckFindsEachBreach(t *testing.T) {
	reporter := goPackage{ImportPath: module + "/cmd/kms-health-reporter"}
	kubectl := goPackage{ImportPath: module + "/cmd/kubectl-kms_health"}
	tests := []struct {
		name string
		pkg  goPackage
		want []string
	}{
		{"a program knows a library",
			goPackage{ImportPath: module + "/cmd/x", Deps: []string{module + "/pkg/contract"}}, nil},
		{"a library knows a program",
			goPackage{ImportPath: module + "/pkg/x", Deps: []string{module + "/cmd/y/app"}},
			[]string{module + "/pkg/x must not know " + module + "/cmd/y/app"}},
		{"operator and reporter",
			goPackage{ImportPath: module + "/pkg/operator/x", Deps: []string{module + "/pkg/reporter/probe"}},
			[]string{module + "/pkg/operator/x must not know " + module + "/pkg/reporter/probe"}},
		{"the contract's own folder",
			goPackage{ImportPath: module + "/pkg/config/v1alpha1", Deps: []string{module + "/pkg/config/internal", "fmt"}}, nil},
		{"a name that only begins alike",
			goPackage{ImportPath: module + "/pkg/healthy", Deps: []string{module + "/pkg/rollup"}}, nil},
		{"the contract imports another package",
			goPackage{ImportPath: module + "/pkg/contract", Deps: []string{module + "/pkg/config/v1alpha1"}},
			[]string{module + "/pkg/contract must not know " + module + "/pkg/config/v1alpha1"}},
		{"the product uses the tests' plugin",
			goPackage{ImportPath: module + "/pkg/x", Deps: []string{module + "/test/kmsplugin"}},
			[]string{module + "/pkg/x must not know " + module + "/test/kmsplugin"}},
		{"a test of the product does",
			goPackage{ImportPath: module + "/pkg/x", XTestImports: []string{module + "/test/kmsplugin"}}, nil},
		{"a test of the contract imports another package",
			goPackage{ImportPath: module + "/pkg/contract", XTestImports: []string{module + "/pkg/rollup"}},
			[]string{module + "/pkg/contract must not know " + module + "/pkg/rollup, in its tests neither"}},
		{"the tests use their own tools",
			goPackage{ImportPath: module + "/test/x", Deps: []string{module + "/test/kmsplugin"}}, nil},
		{"the reporter links a typed clientset",
			goPackage{
				ImportPath: reporter.ImportPath,
				Deps:       []string{"k8s.io/client-go/kubernetes/scheme", "k8s.io/apimachinery/pkg/runtime"},
			},
			[]string{reporter.ImportPath + " must not know k8s.io/client-go/kubernetes/scheme"}},
		{"the roll-up knows the operator",
			goPackage{
				ImportPath: module + "/pkg/rollup",
				Deps:       []string{module + "/pkg/contract", module + "/pkg/operator/apiserver"},
			},
			[]string{module + "/pkg/rollup must not know " + module + "/pkg/operator/apiserver"}},
		{"kubectl's plugin knows the operator",
			goPackage{
				ImportPath: kubectl.ImportPath + "/internal/x",
				Deps:       []string{module + "/pkg/rollup", module + "/pkg/operator/apiserver"},
			},
			[]string{kubectl.ImportPath + "/internal/x must not know " + module + "/pkg/operator/apiserver"}},
		{"render knows a controller",
			goPackage{
				ImportPath: module + "/pkg/operator/render",
				Deps:       []string{module + "/pkg/operator/objects", module + "/pkg/operator/apiserver"},
			},
			[]string{module + "/pkg/operator/render must not know " + module + "/pkg/operator/apiserver"}},
		{"anybody links controller-runtime",
			goPackage{ImportPath: module + "/test/x", Deps: []string{"sigs.k8s.io/controller-runtime/pkg/manager"}},
			[]string{module + "/test/x must not know sigs.k8s.io/controller-runtime/pkg/manager"}},
		{"the reporter's tests may",
			goPackage{ImportPath: reporter.ImportPath, TestImports: []string{"k8s.io/api/core/v1"}}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := check([]goPackage{test.pkg, reporter, kubectl}, rules); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestCheckMissesARenamedBinary(t *testing.T) {
	if got := check(nil, rules); len(got) != 2 {
		t.Errorf("got %q, want a line each that the reporter and kubectl's plugin are not there", got)
	}
}
