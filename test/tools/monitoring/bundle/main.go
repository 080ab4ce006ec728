// Command bundle checks a bundle for OLM with the validators of github.com/operator-framework/api.
// That module's command operator-verify runs only three of them, and its exit code is always 0. This
// command runs all validators for bundles, and fails on warnings too.
//
//	bundle DIR     DIR has the folders manifests and metadata
package main

import (
	"fmt"
	"os"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
)

var validators = validation.DefaultBundleValidators.WithValidators(
	validation.OperatorHubV2Validator,
	validation.StandardCapabilitiesValidator,
	validation.StandardCategoriesValidator,
	validation.ObjectValidator,
	validation.GoodPracticesValidator,
	validation.AlphaDeprecatedAPIsValidator,
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "error: usage: bundle DIR")
		os.Exit(2)
	}
	bundle, err := manifests.GetBundleFromDir(os.Args[1])
	if err != nil || bundle == nil {
		fmt.Fprintln(os.Stderr, "error: read the bundle:", err)
		os.Exit(1)
	}
	found := 0
	for _, result := range validators.Validate(bundle.ObjectsToValidate()...) {
		for _, problem := range append(result.Errors, result.Warnings...) {
			fmt.Println(problem.Error())
			found++
		}
	}
	if found > 0 {
		os.Exit(1)
	}
}
