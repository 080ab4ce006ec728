package v1alpha1

import (
	"strings"
	"testing"
)

func TestImageIsAReference(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0123456789abcdef", 4)
	for image, valid := range map[string]bool{
		"reporter":                            true,
		"reporter:1":                          true,
		"reporter" + digest:                   true,
		"example.com/a/b-c__d.e:v1.2_3-x":     true,
		"example.com:5000/a:1" + digest:       true,
		"localhost:5000/a":                    true,
		"[fd00::1]:5000/a:1":                  true,
		"a/" + strings.Repeat("b", 253):       true,
		"BAD IMAGE":                           false,
		"Reporter":                            false,
		"Example.com/reporter":                true, // a host, in capitals
		"docker://example.com/a":              false,
		"https://example.com/a":               false,
		"a:":                                  false,
		"a:-1":                                false,
		"a:" + strings.Repeat("1", 129):       false,
		"a@sha256:0123":                       false,
		"a@" + strings.Repeat("0", 64):        false,
		"a//b":                                false,
		"a/":                                  false,
		"/a":                                  false,
		"a\nb":                                false,
		"${IMAGE}":                            false,
		"a/" + strings.Repeat("b", 254):       false,
		strings.Repeat("0123456789abcdef", 4): false, // an image's ID
	} {
		if errs := validateImage(nil, image); (len(errs) == 0) != valid {
			t.Errorf("%q: %v", image, errs)
		}
	}
}
