// Package typed reads the commands of documentation pages, and makes a copy of the checkout in which they can run.
package typed

import (
	"regexp"
	"strings"
)

var (
	shell    = regexp.MustCompile(`^ *(?:sudo |\$ )?(?:make|kubectl|oc|kind|skopeo|sed|cat|kill|install|(?:\.\./kms-health/)?bin/[\w-]+) |^ *sudo grep `)
	hereFile = regexp.MustCompile(`<<'?(\w+)'?`)
	codeSpan = regexp.MustCompile("`([^`]+)`")
)

// Commands returns the commands of a page in their order, from code blocks and from the text.
func Commands(page string) (all []string) {
	var command []string
	end, open, fenced, language := "", false, false, ""
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		if fence, ok := strings.CutPrefix(strings.TrimSpace(line), "```"); ok {
			fenced, language = !fenced, fence
			continue
		}
		block := fenced && language == "" || !fenced && strings.HasPrefix(line, "    ")
		switch {
		case len(command) > 0:
			command = append(command, line)
		case block && shell.MatchString(line+" "):
			command = []string{strings.TrimSpace(line)}
		case !block && !fenced:
			for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
				if shell.MatchString(m[1]) {
					all = append(all, m[1])
				}
			}
		}
		if len(command) == 0 {
			continue
		}
		if m := hereFile.FindStringSubmatch(line); m != nil {
			end = m[1]
		}
		if line == end {
			end = ""
		}
		open = strings.HasSuffix(line, "$(") || open && !strings.HasSuffix(line, `)"`)
		if end == "" && !open && !strings.HasSuffix(line, `\`) {
			all, command = append(all, strings.Join(command, "\n")), nil
		}
	}
	return all
}
