package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
)

// page is one file of the documentation.
type page struct {
	path    string // from the root of the checkout
	lines   int    // without fenced code
	anchors map[string]bool
	links   []string
	code    []string // commands: code in text, and lines of code blocks, with continued lines joined
	blocks  []string // fenced code blocks
}

var (
	heading  = regexp.MustCompile(`^#{1,6} +(.*)$`)
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codeSpan = regexp.MustCompile("`([^`]+)`")
	notSlug  = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// tree calls visit for each file of the checkout that is not hidden and not built.
func tree(t *testing.T, visit func(path string, content func() string)) {
	t.Helper()
	root, err := program.Root()
	must.Succeed(t, err)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if entry.IsDir() {
			if name := entry.Name(); rel != "." && (strings.HasPrefix(name, ".") || rel == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if entry.Type().IsRegular() {
			visit(rel, func() string { return string(disk.Read(t, path)) })
		}
		return nil
	})
	must.Succeed(t, err)
}

var readPages = sync.OnceValue(func() map[string]*page { return map[string]*page{} })

// pages are all pages, by path.
func pages(t *testing.T) map[string]*page {
	t.Helper()
	all := readPages()
	if len(all) == 0 {
		tree(t, func(path string, content func() string) {
			if strings.HasSuffix(path, ".md") {
				all[path] = parse(path, content())
			}
		})
	}
	return all
}

func parse(path, text string) *page {
	p := &page{path: path, anchors: map[string]bool{}}
	var fence []string
	fenced, joined := false, ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if !fenced {
			p.lines++
		}
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			if fenced {
				p.blocks = append(p.blocks, strings.Join(fence, "\n")+"\n")
			}
			fenced, fence = !fenced, nil
		case fenced || strings.HasPrefix(line, "    "):
			fence = append(fence, line)
			joined += strings.TrimSpace(strings.TrimSuffix(line, `\`)) + " "
			if !strings.HasSuffix(line, `\`) {
				p.code, joined = append(p.code, joined), ""
			}
		default:
			if m := heading.FindStringSubmatch(line); m != nil {
				p.anchors[slug(m[1])] = true
			}
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				p.links = append(p.links, m[1])
			}
			for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
				p.code = append(p.code, m[1])
			}
		}
	}
	return p
}

// slug returns the anchor that GitHub gives a heading.
func slug(heading string) string {
	heading = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(heading, "$1")
	return strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ", "-")
}
