package cluster

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Image is a container image of files and nothing else.
type Image struct {
	Name       string            // with a tag
	Files      map[string]string // files of the host, by their path in the image; all are executable
	Entrypoint []string
	User       string
	Labels     map[string]string
}

// Write writes the image as an archive that `ctr images import` takes.
func (i Image) Write(archive string) error {
	tag, err := name.NewTag(i.Name)
	if err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(i.layer, tarball.WithCompressionLevel(gzip.BestSpeed))
	if err != nil {
		return fmt.Errorf("image %s: %w", i.Name, err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: i.Entrypoint, User: i.User, Labels: i.Labels}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return err
	}
	if err := tarball.WriteToFile(archive, tag, image); err != nil {
		return fmt.Errorf("write image %s: %w", i.Name, err)
	}
	return nil
}

// layer is a tar of the files. It is opened several times.
func (i Image) layer() (io.ReadCloser, error) {
	r, w := io.Pipe()
	go func() { w.CloseWithError(i.writeLayer(w)) }()
	return r, nil
}

func (i Image) writeLayer(w io.Writer) error {
	out := tar.NewWriter(w)
	for _, to := range slices.Sorted(maps.Keys(i.Files)) {
		f, err := os.Open(i.Files[to])
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err == nil {
			err = out.WriteHeader(&tar.Header{Name: strings.TrimPrefix(to, "/"), Mode: 0o755, Size: info.Size(), Format: tar.FormatPAX})
		}
		if err == nil {
			_, err = io.Copy(out, f)
		}
		_ = f.Close()
		if err != nil {
			return err
		}
	}
	return out.Close()
}

// FromDockerfile is the image that `docker build --target` would make: its program is
// built by the Dockerfile's own command, on this host, from the checkout at root, and
// its configuration is read from the target's instructions. It supports the
// instructions that our Dockerfile uses; another one is an error. image is its name,
// and dir gets the program.
func FromDockerfile(root, target, image, dir string, args map[string]string) (*Image, error) {
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
	result := &Image{Name: image, Files: map[string]string{}, Labels: map[string]string{}}
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
			if err := stages[from].run(root, args, words[1], file); err != nil {
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
func (s *stage) run(root string, args map[string]string, file, to string) error {
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
		cmd := exec.Command("sh", "-ec", expand(strings.ReplaceAll(in.rest, file, to), args))
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
