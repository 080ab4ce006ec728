package image

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	comment  = regexp.MustCompile(`(?m)^\s*#.*\n`)
	variable = regexp.MustCompile(`\$\{([A-Z]+)\}`)
	label    = regexp.MustCompile(`([a-z.]+)="([^"]*)"`)
)

// FromDockerfile returns the image that `docker build --target` would build. It runs the Dockerfile's RUN command on
// this host, in the checkout at root, and reads the configuration from the target's instructions. dir gets the files,
// and args are the build arguments, with TARGETARCH. An instruction that the project's Dockerfile does not use is an
// error.
func FromDockerfile(ctx context.Context, root, target, dir string, args map[string]string) (*Image, error) {
	content, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		return nil, err
	}
	text := strings.ReplaceAll(comment.ReplaceAllString(string(content), ""), "\\\n", " ")
	text = variable.ReplaceAllStringFunc(text, func(v string) string { return args[v[2:len(v)-1]] })
	program := "kms-health-" + target

	run := regexp.MustCompile(`(?m)^RUN (.* -o /out/` + program + ` .*)$`).FindStringSubmatch(text)
	_, stage, found := strings.Cut(text, "\nFROM scratch AS "+target+"\n")
	if run == nil || !found {
		return nil, fmt.Errorf("the Dockerfile has no command or no stage, from scratch, of %s", program)
	}
	cmd := exec.CommandContext(ctx, "sh", "-ec", strings.ReplaceAll(run[1], "/out/", dir+"/"))
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("RUN %s: %w\n%s", run[1], err, out)
	}

	i := &Image{Architecture: args["TARGETARCH"], Files: map[string]string{}, Labels: map[string]string{}}
	stage, _, _ = strings.Cut(stage, "\nFROM ")
	for line := range strings.Lines(stage) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "", "ARG":
		case "USER":
			i.User = rest
		case "ENTRYPOINT":
			if err := json.Unmarshal([]byte(rest), &i.Entrypoint); err != nil {
				return nil, fmt.Errorf("ENTRYPOINT %s: %w", rest, err)
			}
		case "LABEL":
			for _, match := range label.FindAllStringSubmatch(rest, -1) {
				i.Labels[match[1]] = match[2]
			}
		case "COPY":
			from, to, _ := strings.Cut(rest, " ")
			if from == "--from=build-"+target {
				built, as, _ := strings.Cut(to, " ")
				from, to = filepath.Join(dir, strings.TrimPrefix(built, "/out/")), as
			} else {
				from = filepath.Join(root, from)
			}
			i.Files[to] = from
		default:
			return nil, fmt.Errorf("instruction %s of stage %s is not known here", word, target)
		}
	}
	return i, nil
}
