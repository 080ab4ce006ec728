package sockets

import (
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// kind names the kind of a volume as its manifest does.
func kind(v *corev1.Volume) string {
	source := reflect.ValueOf(v.VolumeSource)
	for i := range source.NumField() {
		if !source.Field(i).IsNil() {
			name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
			return "of kind " + name
		}
	}
	return "of no kind that is known here"
}
