// Command configref writes the reference of the configuration files,
// docs/reference/configuration.md, from the comments of the types that the files are
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

	"github.com/kms-health/kms-health/pkg/contract"
)

// document is the reference of one kind of file.
type document struct {
	root    string   // the type that a file is decoded into
	program string   // that reads it
	intro   string   // what to know of it
	samples []string // files beside the types
}

var documents = []document{{
	root: "ReporterConfiguration", program: "kms-health-reporter", samples: []string{"reporter-sample.yaml"},
	intro: `    kms-health-reporter --validate --config FILE    # ok, or every error
    kms-health-reporter --print-defaults            # a sample with every field
`,
}, {
	root: "OperatorConfiguration", program: "kms-health-operator", samples: []string{"operator-openshift.yaml", "operator-kubernetes.yaml"},
	intro: `    kms-health-operator validate --config FILE      # ok, or every error
    kms-health-operator print-defaults              # a sample; --kubernetes: without OpenShift
`,
}}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: configref PACKAGE-DIR OUTPUT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "configref: %v\n", err)
		os.Exit(1)
	}
}

func run(dir, output string) error {
	pkg, err := parse(dir)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteString(intro)
	done := map[string]bool{}
	for _, d := range documents {
		if err := render(&b, pkg, d, done); err != nil {
			return err
		}
	}
	return os.WriteFile(output, b.Bytes(), 0o644)
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

Each program reads one file, in YAML or JSON, and follows its changes. An unknown or
duplicate field, or a value of the wrong type, is an error. All errors are reported at
once, each with its path and value, and the last valid file stays active. A file has at
most 128 KiB and one document, without YAML anchors, and without characters that hide
text (control characters but tab and the end of a line, U+2028, U+2029, those that change
the direction of text), in comments too. Of several values of a wrong type only the first
is reported. A field without a value, or with an empty string, is not set. Durations have
a unit: 500ms, 30s, 5m. What has no default, and is not required, may be not set.
`

// links lead from the page to files beside the types.
func links(files []string) (all []string) {
	for _, file := range files {
		all = append(all, fmt.Sprintf("[%s](../../pkg/config/v1alpha1/%s)", file, file))
	}
	return all
}

// render writes what one kind of file is for, links to samples, and a section per
// type, outermost first, but for those that stand there already.
func render(b *bytes.Buffer, pkg *doc.Package, d document, done map[string]bool) error {
	types := map[string]*doc.Type{}
	for _, t := range pkg.Types {
		types[t.Name] = t
	}
	fmt.Fprintf(b, "\n## The file of %s\n\n%s", d.program, d.intro)
	fmt.Fprintf(b, "\nSamples: %s.\n", strings.Join(links(d.samples), ", "))
	queue := []string{d.root}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		t := types[name]
		if t == nil || done[name] {
			continue
		}
		done[name] = true
		next, err := section(b, t)
		if err != nil {
			return err
		}
		queue = append(queue, next...)
	}
	return nil
}

// section writes one type, and returns the types that it refers to.
func section(b *bytes.Buffer, t *doc.Type) (refers []string, err error) {
	fmt.Fprintf(b, "\n### %s\n", t.Name)
	// The first sentence of a comment names the type.
	if _, more, found := strings.Cut(paragraph(t.Doc), ". "); found {
		fmt.Fprintf(b, "\n%s\n", more)
	}
	if t.Name == "Resource" {
		resources(b)
		return nil, nil
	}
	structure, ok := t.Decl.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType)
	if !ok {
		return nil, values(b, t)
	}
	b.WriteString("\n")
	for _, f := range structure.Fields.List {
		if len(f.Names) == 0 {
			continue // apiVersion and kind, which the samples show
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
		fmt.Fprintf(b, "- `%s` (%s%s): %s\n", name, shown, marks, paragraph(text))
	}
	return refers, nil
}

// split parts a comment from its markers, and puts these into words.
func split(comment string) (text, marks string) {
	marks = "; required"
	var lines []string
	for _, line := range strings.Split(comment, "\n") {
		switch value, isDefault := strings.CutPrefix(line, "+default="); {
		case isDefault:
			marks = "; default " + value
		case line == "+optional":
			marks = ""
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
	case *ast.MapType:
		shown, refers = typeName(e.Value)
		return "mapping to " + shown, refers
	case *ast.Ident:
		if e.Name == "Duration" {
			return "duration", ""
		}
		if ast.IsExported(e.Name) {
			return fmt.Sprintf("[%s](#%s)", e.Name, strings.ToLower(e.Name)), e.Name
		}
		return e.Name, ""
	default:
		return fmt.Sprintf("%T", e), ""
	}
}

// resources writes the plural names of the resources that have reports.
func resources(b *bytes.Buffer) {
	b.WriteString("\n")
	for _, r := range contract.Resources {
		fmt.Fprintf(b, "- `%s`: of %s.\n", r.Plural, r.APIServer.Name)
	}
	fmt.Fprintf(b, "- `%s`: without OpenShift. The operator creates an object for each API server, with its name.\n",
		contract.KMSHealthsPlural)
}

// values writes the constants of a string type.
func values(b *bytes.Buffer, t *doc.Type) error {
	b.WriteString("\n")
	for _, group := range t.Consts {
		for _, spec := range group.Decl.Specs {
			v := spec.(*ast.ValueSpec)
			if v.Doc == nil {
				return fmt.Errorf("%s has no comment", v.Names[0])
			}
			_, meaning, _ := strings.Cut(paragraph(v.Doc.Text()), " ") // past the constant's name
			fmt.Fprintf(b, "- `%s`: %s\n", strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`), sentence(meaning))
		}
	}
	return nil
}

// sentence begins with a capital letter. Its subject, the value, is before it.
func sentence(text string) string {
	text = strings.TrimPrefix(strings.TrimPrefix(text, "is "), "means that ")
	return strings.ToUpper(text[:1]) + text[1:]
}

// paragraph joins the lines of a comment, and keeps <this> from being HTML.
func paragraph(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "<", "&lt;")
}
