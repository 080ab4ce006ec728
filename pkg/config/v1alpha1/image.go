package v1alpha1

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The grammar of an image reference, [host[:port]/]path[:tag][@digest], is that of
// github.com/distribution/reference, by which container runtimes read it.
var (
	imageReference = regexp.MustCompile(`^(?:` + imageHost + `/)?(` + imagePath + `)(?::[\w][\w.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$`)
	imageID        = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

const (
	imageHost = `(?:(?:[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9])(?:\.(?:[A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9]))*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?`
	imageName = `[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*`
	imagePath = imageName + `(?:/` + imageName + `)*`
	// maxImageName bounds a reference without tag and digest, in bytes.
	maxImageName = 255
)

// validateImage checks that an image, where set, is a valid reference. Whether the image
// exists is checked by the node that pulls it.
func validateImage(path *field.Path, image string) field.ErrorList {
	if image == "" {
		return nil
	}
	name, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	if imageReference.MatchString(image) && !imageID.MatchString(image) && len(name) <= maxImageName {
		return nil
	}
	return field.ErrorList{field.Invalid(path, short(image), "must be the reference of an image, as in registry.example.com/kms-health-reporter:v1")}
}
