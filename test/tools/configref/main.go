// Command configref writes the reference of the configuration files,
// docs/configuration.md, from the comments of the types that the files are
// decoded into. Run by go generate in the package of those types.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: configref PACKAGE-DIR SAMPLE OUTPUT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintf(os.Stderr, "configref: %v\n", err)
		os.Exit(1)
	}
}

func run(dir, sample, output string) error {
	pkg, err := parse(dir)
	if err != nil {
		return err
	}
	yaml, err := os.ReadFile(sample)
	if err != nil {
		return err
	}
	text, err := render(pkg, string(yaml), "ReporterConfiguration")
	if err != nil {
		return err
	}
	return os.WriteFile(output, text, 0o644)
}

func parse(dir string) (*doc.Package, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return doc.NewFromFiles(fset, files, "v1alpha1")
}

const intro = `# Configuration reference

<!-- Generated from pkg/config/v1alpha1 by "make generate". Do not edit. -->

` + "`kms-health-reporter`" + ` reads one file, in YAML or JSON, and follows its changes. Decoding
is strict: an unknown field, a doubled field or a value of the wrong type is a
mistake. All mistakes are reported at once, each with its path and value, and the
last good file stays in force. The file may be up to 1 MiB and holds one document.

    kms-health-reporter --validate --config FILE    # ok, or every mistake
    kms-health-reporter --print-defaults            # the sample below

`

// render writes the sample and a section per type, outermost first.
func render(pkg *doc.Package, sample, root string) ([]byte, error) {
	types := map[string]*doc.Type{}
	for _, t := range pkg.Types {
		types[t.Name] = t
	}
	var b bytes.Buffer
	b.WriteString(intro + "## Sample\n\n```yaml\n" + sample + "```\n")
	queue, done := []string{root}, map[string]bool{}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		t := types[name]
		if t == nil || done[name] {
			continue
		}
		done[name] = true
		next, err := section(&b, t)
		if err != nil {
			return nil, err
		}
		queue = append(queue, next...)
	}
	return b.Bytes(), nil
}

// section writes one type, and returns the types that it refers to.
func section(b *bytes.Buffer, t *doc.Type) (refers []string, err error) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n", t.Name, paragraph(t.Doc))
	structure, ok := t.Decl.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType)
	if !ok {
		return nil, values(b, t)
	}
	b.WriteString("\n| field | type | default | meaning |\n| --- | --- | --- | --- |\n")
	for _, f := range structure.Fields.List {
		if len(f.Names) == 0 {
			b.WriteString("| `apiVersion`, `kind` | string | required | what the file is: see the sample |\n")
			continue
		}
		if f.Doc == nil {
			return nil, fmt.Errorf("%s.%s has no comment", t.Name, f.Names[0])
		}
		name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
		text, marks := split(f.Doc.Text())
		shown, refer := typeName(f.Type)
		if refer != "" {
			refers = append(refers, refer)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", name, shown, marks, paragraph(text))
	}
	return refers, nil
}

// split parts a comment from its markers, and puts these into words.
func split(comment string) (text, marks string) {
	marks = "-"
	var lines []string
	for _, line := range strings.Split(comment, "\n") {
		switch value, isDefault := strings.CutPrefix(line, "+default="); {
		case isDefault:
			marks = value
		case line == "+required":
			marks = "required"
		case line == "+optional":
			marks = "left out"
		default:
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n"), marks
}

// typeName names a type as it is written in a file, and the type of ours behind
// it, if any.
func typeName(e ast.Expr) (shown, refers string) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.ArrayType:
		shown, refers = typeName(e.Elt)
		return "list of " + shown, refers
	case *ast.SelectorExpr:
		return strings.ToLower(e.Sel.Name), "" // metav1.Duration
	case *ast.Ident:
		if ast.IsExported(e.Name) {
			return fmt.Sprintf("[%s](#%s)", e.Name, strings.ToLower(e.Name)), e.Name
		}
		return e.Name, ""
	default:
		return fmt.Sprintf("%T", e), ""
	}
}

// values writes the constants of a string type.
func values(b *bytes.Buffer, t *doc.Type) error {
	b.WriteString("\n| value | meaning |\n| --- | --- |\n")
	for _, group := range t.Consts {
		for _, spec := range group.Decl.Specs {
			v := spec.(*ast.ValueSpec)
			if v.Doc == nil {
				return fmt.Errorf("%s has no comment", v.Names[0])
			}
			_, meaning, _ := strings.Cut(paragraph(v.Doc.Text()), " ") // past the constant's name
			fmt.Fprintf(b, "| `%s` | %s |\n", strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`), meaning)
		}
	}
	return nil
}

// paragraph joins the lines of a comment, and keeps <this> from being HTML.
func paragraph(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "<", "&lt;")
}
