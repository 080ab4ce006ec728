// Package bindata holds the YAML that the operator applies, as text/templates.
// Values are put in by the functions json, indent and include of pkg/operator/render.
package bindata

import "embed"

// Files are the templates.
//
//go:embed *.yaml
var Files embed.FS
