// Package bindata holds the YAML that the operator applies, with the only definition of the reporter's container. A
// scalar $NAME is a placeholder: package objects replaces it by a value.
package bindata

import "embed"

// Files are the YAML files.
//
//go:embed *.yaml
var Files embed.FS
