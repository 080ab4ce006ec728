// Command mutations changes the code of packages, one expression or statement at a time, and counts how many of these
// mutants the tests of the package kill. It prints the mutants that survived: file, line, and change.
//
// A seed determines which mutants are chosen. A mutant that does not compile is not counted. The working tree is not
// changed: go test gets the changed file as an overlay.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

var (
	seed = flag.Uint64("seed", 1, "draws the mutants")
	most = flag.Int("most", 150, "mutants of a package; 0: all")
	tags = flag.String("tags", "", "build tags")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := 0
	for _, folder := range flag.Args() {
		if err := judge(ctx, folder); err != nil {
			fmt.Fprintf(os.Stderr, "error: %s: %v\n", folder, err)
			status = 1
		}
	}
	stop()
	os.Exit(status)
}

// mutant replaces the bytes of a file from start to end by the text with.
type mutant struct {
	path       string
	start, end int
	line       int
	with, what string
}

// swapped has the replacements of each operator.
var swapped = map[token.Token][]string{
	token.EQL: {"!="}, token.NEQ: {"=="},
	token.LSS: {"<=", ">="}, token.LEQ: {"<", ">"}, token.GTR: {">=", "<="}, token.GEQ: {">", "<"},
	token.LAND: {"||"}, token.LOR: {"&&"},
	token.ADD: {"-"}, token.SUB: {"+"}, token.MUL: {"/"}, token.QUO: {"*"},
}

// mutantsOf returns all mutants of a file.
func mutantsOf(path string) (found []mutant, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		return nil, err
	}
	add := func(from, to token.Pos, with, what string) {
		start := files.Position(from)
		found = append(found, mutant{path, start.Offset, files.Position(to).Offset, start.Line, with, what})
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.ADD && (isText(n.X) || isText(n.Y)) {
				break
			}
			for _, with := range swapped[n.Op] {
				add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), with, n.Op.String()+" is "+with)
			}
		case *ast.UnaryExpr:
			if n.Op == token.NOT {
				add(n.OpPos, n.OpPos+1, "", "! is removed")
			}
		case *ast.IfStmt:
			switch n.Cond.(type) {
			case *ast.CallExpr, *ast.Ident, *ast.SelectorExpr:
				add(n.Cond.Pos(), n.Cond.Pos(), "!", "the condition is negated")
			}
		case *ast.BasicLit:
			if n.Kind == token.INT {
				add(n.End(), n.End(), "+1", n.Value+" is one more")
			}
		case *ast.BlockStmt:
			dropped(n.List, add)
		case *ast.CaseClause:
			dropped(n.Body, add)
		}
		return true
	})
	return found, nil
}

// dropped adds a mutant for each statement that can be removed.
func dropped(list []ast.Stmt, add func(from, to token.Pos, with, what string)) {
	for _, s := range list {
		if assign, ok := s.(*ast.AssignStmt); ok && assign.Tok == token.DEFINE {
			continue
		}
		switch s.(type) {
		case *ast.ExprStmt, *ast.AssignStmt, *ast.IncDecStmt, *ast.DeferStmt, *ast.BranchStmt:
			add(s.Pos(), s.End(), "", "the statement is removed")
		}
	}
}

// isText reports whether an expression is a string literal, or a sum with one.
func isText(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return isText(e.X) || isText(e.Y)
	}
	return false
}

// judge runs the tests of a package with its mutants, and prints the result.
func judge(ctx context.Context, folder string) error {
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return err
	}
	var mutants []mutant
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(filepath.Base(path), "zz_") {
			continue
		}
		found, err := mutantsOf(path)
		if err != nil {
			return err
		}
		mutants = append(mutants, found...)
	}
	if output, err := test(ctx, folder); err != nil {
		return fmt.Errorf("the tests fail without a change: %w\n%s", err, output)
	}
	rand.New(rand.NewPCG(*seed, 0)).Shuffle(len(mutants), func(i, k int) { mutants[i], mutants[k] = mutants[k], mutants[i] })
	drawn := mutants
	if *most > 0 && len(drawn) > *most {
		drawn = drawn[:*most]
	}
	killed, lived, err := outcomes(ctx, folder, drawn)
	if err == nil {
		fmt.Printf("%s: %.1f %% killed (%d of %d that compile; %d drawn of %d)\n",
			folder, 100*float64(killed)/float64(max(1, killed+lived)), killed, killed+lived, len(drawn), len(mutants))
	}
	return err
}

func outcomes(ctx context.Context, folder string, drawn []mutant) (killed, lived int, err error) {
	queue := make(chan mutant)
	var wait sync.WaitGroup
	var all sync.Mutex
	for range runtime.NumCPU() {
		wait.Go(func() {
			for m := range queue {
				compiles, survives, e := m.outcome(ctx, folder)
				all.Lock()
				switch {
				case e != nil:
					err = e
				case survives:
					lived++
					fmt.Printf("  lived: %s:%d: %s\n", m.path, m.line, m.what)
				case compiles:
					killed++
				}
				all.Unlock()
			}
		})
	}
	for _, m := range drawn {
		queue <- m
	}
	close(queue)
	wait.Wait()
	return killed, lived, errors.Join(err, ctx.Err())
}

// outcome runs the tests with a mutant.
func (m mutant) outcome(ctx context.Context, folder string) (compiles, survives bool, err error) {
	text, err := os.ReadFile(m.path)
	if err != nil {
		return false, false, err
	}
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return false, false, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	original, err := filepath.Abs(m.path)
	if err != nil {
		return false, false, err
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		return false, false, err
	}
	err = errors.Join(os.WriteFile(overlay, list, 0o600),
		os.WriteFile(changed, []byte(string(text[:m.start])+m.with+string(text[m.end:])), 0o600))
	if err != nil {
		return false, false, err
	}
	output, err := test(ctx, folder, "-overlay", overlay)
	return !strings.Contains(output, "[build failed]"), err == nil, nil
}

// test runs the tests of a package. A test that hangs fails after a minute.
func test(ctx context.Context, folder string, flags ...string) (output string, err error) {
	flags = append([]string{"test", "-count=1", "-failfast", "-vet=off", "-timeout=1m", "-tags=" + *tags}, flags...)
	raw, err := exec.CommandContext(ctx, "go", append(flags, "./"+folder)...).CombinedOutput()
	return string(raw), err
}
