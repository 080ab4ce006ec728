package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/kms-health/kms-health/pkg/contract"
)

// configuration has the Go types of the configuration files, with their comments.
type configuration map[string]*doc.Type

// typeOf is a type in the reference of the configuration files.
type typeOf struct {
	Name, Text string
	Items      []string // the fields, or the values
	refers     []string // the types of its fields
}

func readConfiguration(dir string) (configuration, error) {
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
	pkg, err := doc.NewFromFiles(fset, files, "v1alpha1")
	if err != nil {
		return nil, err
	}
	c := configuration{}
	for _, t := range pkg.Types {
		c[t.Name] = t
	}
	return c, nil
}

// types returns a type and the types that it refers to, outermost first. Each type is in only one reference.
func (c configuration) types(root string) (all []typeOf, err error) {
	for queue := []string{root}; len(queue) > 0; queue = queue[1:] {
		t := c[queue[0]]
		if t == nil {
			continue
		}
		delete(c, t.Name)
		one := typeOf{Name: t.Name}
		// Skip the first sentence of the comment, which names the type.
		_, one.Text, _ = strings.Cut(paragraph(t.Doc), ". ")
		switch is := t.Decl.Specs[0].(*ast.TypeSpec).Type.(type) {
		case *ast.StructType:
			err = one.fields(is)
		default:
			err = one.values(t)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		all, queue = append(all, one), append(queue, one.refers...)
	}
	return all, nil
}

func (t *typeOf) fields(of *ast.StructType) error {
	for _, f := range of.Fields.List {
		if len(f.Names) == 0 {
			continue // apiVersion and kind: the samples show them
		}
		if f.Doc == nil {
			return fmt.Errorf("%s has no comment", f.Names[0])
		}
		name, omit, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
		text, value, hasDefault := strings.Cut(f.Doc.Text(), "+default=")
		marks := "; required"
		if hasDefault {
			marks = "; default " + strings.TrimSpace(value)
		} else if omit != "" {
			marks = ""
		}
		shown, refers := typeName(f.Type)
		t.refers = append(t.refers, refers)
		item := fmt.Sprintf("%#q", name)
		// Most fields are strings, so the type "string" is omitted.
		if about := strings.TrimPrefix(strings.TrimPrefix(shown+marks, "string"), "; "); about != "" {
			item += " (" + about + ")"
		}
		t.Items = append(t.Items, item+": "+paragraph(text))
	}
	return nil
}

// typeName returns the name of a type for readers of a file, and the type of the configuration that it refers to, if
// any.
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
		switch {
		case e.Name == "Duration":
			return "duration", ""
		case ast.IsExported(e.Name):
			return fmt.Sprintf("[%s](#%s)", e.Name, strings.ToLower(e.Name)), e.Name
		}
		return e.Name, ""
	}
	return fmt.Sprintf("%T", e), ""
}

// values adds the constants of a string type. The values of Resource are in the contract.
func (t *typeOf) values(of *doc.Type) error {
	if t.Name == "Resource" {
		for _, r := range contract.Resources {
			t.Items = append(t.Items, fmt.Sprintf("%#q: of %s.", r.Plural, r.APIServer.Name))
		}
		t.Items = append(t.Items, "`"+contract.KMSHealthsPlural+"`: without OpenShift; an object for each API server.")
		return nil
	}
	for _, group := range of.Consts {
		for _, spec := range group.Decl.Specs {
			v := spec.(*ast.ValueSpec)
			text := paragraph(v.Comment.Text())
			if v.Doc != nil { // skip the constant's name: the item begins with the value
				_, text, _ = strings.Cut(paragraph(v.Doc.Text()), " ")
				text = strings.TrimPrefix(text, "is ")
			}
			if text == "" {
				return fmt.Errorf("%s has no comment", v.Names[0])
			}
			t.Items = append(t.Items, fmt.Sprintf("%#q: %s%s",
				strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`), strings.ToUpper(text[:1]), text[1:]))
		}
	}
	return nil
}

// paragraph joins the lines of a comment, and escapes "<" for HTML.
func paragraph(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "<", "&lt;")
}
