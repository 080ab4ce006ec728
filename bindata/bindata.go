// Package bindata holds the YAML that the operator applies, and the one definition
// of the reporter's container, as text/templates.
package bindata

import (
	"bytes"
	"embed"
	"strings"
	"text/template"

	"github.com/kms-health/kms-health/pkg/applybody"
)

// Files are the templates.
//
//go:embed *.yaml
var Files embed.FS

var templates = parse()

func parse() *template.Template {
	t := template.New("")
	t.Funcs(template.FuncMap{
		// A JSON value is a YAML value on one line, whatever is in it.
		"json": func(v any) (string, error) {
			raw, err := applybody.Marshal(v)
			return string(raw), err
		},
		"include": func(name string, data any) (string, error) {
			var b strings.Builder
			err := t.ExecuteTemplate(&b, name, data)
			return b.String(), err
		},
		"indent": func(n int, text string) string {
			pad := "\n" + strings.Repeat(" ", n)
			return pad + strings.ReplaceAll(strings.TrimSpace(text), "\n", pad)
		},
		"trim": strings.TrimSpace,
	})
	return template.Must(t.Option("missingkey=error").ParseFS(Files, "*.yaml"))
}

// Render executes a file, or a template that one defines. It panics if values lacks one that the
// template names: both are in the program.
func Render(name string, values any) []byte {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name, values); err != nil {
		panic(err)
	}
	return b.Bytes()
}
