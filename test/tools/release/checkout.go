package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kms-health/kms-health/test/harness/image"
)

// checkout is what a release is made from.
type checkout struct {
	root    string
	commit  string
	at      time.Time // the commit's
	changes []string  // what differs from the commit
	tags    []string  // of the commit
}

func readCheckout(ctx context.Context, root string) (*checkout, error) {
	c := &checkout{root: root}
	c.commit, c.at = image.Commit(ctx, root)
	if c.at.IsZero() {
		return nil, errors.New("git cannot read the commit, of which a release is made: see what `git log -1` prints")
	}
	var err error
	if c.changes, err = c.git(ctx, "status", "--porcelain", "--untracked-files=all"); err != nil {
		return nil, err
	}
	// The compiler takes a file that git ignores.
	ignored, err := c.git(ctx, "ls-files", "--others", "--", "bindata", "cmd", "pkg")
	if err != nil {
		return nil, err
	}
	for _, name := range ignored {
		if change := "?? " + name; !slices.Contains(c.changes, change) {
			c.changes = append(c.changes, change)
		}
	}
	c.tags, err = c.git(ctx, "tag", "--points-at", "HEAD")
	return c, err
}

// git returns the lines that a git command prints.
func (c *checkout) git(ctx context.Context, args ...string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", c.root}, args...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' }), nil
}

// versionPattern is that of semantic versions, with v, in lower case as in names of objects, and
// without build metadata, which no image tag can hold.
var versionPattern = regexp.MustCompile(`^v` + number + `\.` + number + `\.` + number + `(-` + identifier + `(\.` + identifier + `)*)?$`)

const (
	number     = `(0|[1-9][0-9]*)`
	identifier = `(0|[1-9][0-9]*|[0-9]*[a-z-][0-9a-z-]*)`
)

// notRelease returns why this is no release; nothing if it is one.
func (r *release) notRelease() []string {
	var why []string
	if len(r.changes) > 0 {
		why = append(why, "the checkout has changes")
	}
	if !slices.Contains(r.tags, r.version) {
		why = append(why, fmt.Sprintf("the commit has no tag %s", r.version))
	}
	if strings.HasPrefix(r.registry, "registry.invalid") {
		why = append(why, "no REGISTRY is set, so the manifests name images that cannot be pulled")
	}
	for _, architecture := range image.Architectures {
		if !slices.Contains(r.architectures, architecture) {
			why = append(why, "it has no programs for "+architecture)
		}
	}
	return why
}
