package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// FromDockerfile is the image that `docker build --target` would make: its program is
// built by the Dockerfile's own command, on this host, from the checkout at root, and
// its configuration is read from the target's instructions. It supports the
// instructions that our Dockerfile uses; another one is an error. dir gets the program, and
// args are the build arguments, TARGETARCH among them.
func FromDockerfile(ctx context.Context, root, target, dir string, args map[string]string) (*Image, error) {
	content, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		return nil, err
	}
	stages, err := parseDockerfile(string(content))
	if err != nil {
		return nil, err
	}
	final, found := stages[target]
	if !found {
		return nil, fmt.Errorf("the Dockerfile has no stage %q", target)
	}
	result := &Image{Architecture: args["TARGETARCH"], Files: map[string]string{}, Labels: map[string]string{}}
	if final.from != "scratch" {
		return nil, fmt.Errorf("stage %s is from %q, not from scratch", target, final.from)
	}
	for _, in := range final.instructions {
		rest := expand(in.rest, args)
		switch in.name {
		case "ARG":
		case "USER":
			result.User = rest
		case "ENTRYPOINT":
			if err := json.Unmarshal([]byte(rest), &result.Entrypoint); err != nil {
				return nil, fmt.Errorf("ENTRYPOINT %s: %w", rest, err)
			}
		case "LABEL":
			for _, match := range labelPattern.FindAllStringSubmatch(rest, -1) {
				result.Labels[match[1]] = match[2]
			}
		case "COPY":
			words := strings.Fields(rest)
			from, isStage := strings.CutPrefix(words[0], "--from=")
			if len(words) != 3 || !isStage {
				return nil, fmt.Errorf("COPY %s is not from a stage", rest)
			}
			file := filepath.Join(dir, path.Base(words[1]))
			if err := stages[from].run(ctx, root, args, words[1], file); err != nil {
				return nil, err
			}
			result.Files[words[2]] = file
		default:
			return nil, fmt.Errorf("instruction %s of stage %s is not known here", in.name, target)
		}
	}
	return result, nil
}

var (
	labelPattern    = regexp.MustCompile(`([a-z.]+)="([^"]*)"`)
	variablePattern = regexp.MustCompile(`\$\{([A-Z]+)\}`)
)

type stage struct {
	from         string
	instructions []instruction
}

type instruction struct{ name, rest string }

func parseDockerfile(content string) (map[string]*stage, error) {
	stages := map[string]*stage{}
	var current *stage
	content = regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(content, "")
	for line := range strings.Lines(strings.ReplaceAll(content, "\\\n", " ")) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest = strings.TrimSpace(rest)
		switch {
		case word == "":
		case word == "FROM":
			from, as, named := strings.Cut(rest, " AS ")
			if !named {
				return nil, fmt.Errorf("FROM %s has no name", rest)
			}
			current = &stage{from: from}
			stages[as] = current
		case current != nil:
			current.instructions = append(current.instructions, instruction{word, rest})
		}
	}
	return stages, nil
}

// run runs a stage's one RUN, which writes file, so that it writes to.
func (s *stage) run(ctx context.Context, root string, args map[string]string, file, to string) error {
	if s == nil {
		return fmt.Errorf("no stage makes %s", file)
	}
	for _, in := range s.instructions {
		if in.name != "RUN" {
			continue
		}
		if !strings.Contains(in.rest, file) {
			return fmt.Errorf("RUN %s does not make %s", in.rest, file)
		}
		cmd := exec.CommandContext(ctx, "sh", "-ec", expand(strings.ReplaceAll(in.rest, file, to), args))
		cmd.Dir = root
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("RUN %s: %w\n%s", in.rest, err, out.Bytes())
		}
		return nil
	}
	return fmt.Errorf("no RUN makes %s", file)
}

func expand(text string, args map[string]string) string {
	return variablePattern.ReplaceAllStringFunc(text, func(variable string) string {
		return args[variable[2:len(variable)-1]]
	})
}
