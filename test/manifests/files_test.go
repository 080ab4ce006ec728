package manifests

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

const root = "../../manifests"

func TestConfigMapsHoldTheSamplesByteForByte(t *testing.T) {
	for file, want := range map[string][]byte{
		"openshift/0000_50_kms-health-operator_08_config.yaml": v1alpha1.OperatorOpenShift,
		"kubernetes/config.yaml":                               v1alpha1.OperatorKubernetes,
	} {
		raw, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		var cm corev1.ConfigMap
		if err := yaml.UnmarshalStrict(raw, &cm); err != nil {
			t.Fatal(err)
		}
		if cm.Data["config.yaml"] != string(want) {
			t.Errorf("%s is not pkg/config's sample:\n%s", file, cm.Data["config.yaml"])
		}
		if _, err := v1alpha1.DecodeOperator([]byte(cm.Data["config.yaml"])); err != nil {
			t.Error(err)
		}
	}
}

// A release holds these files side by side.
func TestReleaseFilesSayForWhichClustersTheyAre(t *testing.T) {
	var names []string
	for _, folder := range []string{"common", "openshift", "monitoring"} {
		files, err := filepath.Glob(filepath.Join(root, folder, "0000_50_*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		listed, err := os.ReadFile(filepath.Join(root, folder, "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			name := filepath.Base(file)
			names = append(names, name)
			if !regexp.MustCompile(`^0000_50_kms-health-operator_[0-9]{2}_[a-z-]+\.yaml$`).MatchString(name) {
				t.Errorf("%s is no name for a release", name)
			}
			if !strings.Contains(string(listed), "- "+name+"\n") {
				t.Errorf("%s is not in its kustomization.yaml", name)
			}
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, document := range strings.Split(string(raw), "\n---\n") {
				var o struct {
					Kind     string
					Metadata struct {
						Name        string
						Annotations map[string]string
					}
				}
				if err := yaml.Unmarshal([]byte(document), &o); err != nil {
					t.Fatal(err)
				}
				a := o.Metadata.Annotations
				if a["include.release.openshift.io/self-managed-high-availability"] != "true" || a["include.release.openshift.io/single-node-developer"] != "true" {
					t.Errorf("%s: %s %s is in no release", name, o.Kind, o.Metadata.Name)
				}
				// Hosted control planes run elsewhere.
				if _, hosted := a["include.release.openshift.io/ibm-cloud-managed"]; hosted {
					t.Errorf("%s: %s %s is for hosted control planes", name, o.Kind, o.Metadata.Name)
				}
			}
		}
	}
	slices.Sort(names)
	if len(names) != 19 || len(slices.Compact(names)) != 19 {
		t.Errorf("%d files: %v", len(names), names)
	}
}

var (
	imageField = regexp.MustCompile(`(?m)^[ -]*image: *"?([^"\s]+)`)
	imageEnv   = regexp.MustCompile(`name: [A-Z_]*IMAGE[A-Z_]*\s+value: *"?([^"\s]+)`)
	ifOnNode   = regexp.MustCompile(`(?m)^[ -]*imagePullPolicy: IfNotPresent\b`)
	dockerfile = regexp.MustCompile(`(?m)^FROM scratch AS (\S+)$`)
)

// Whoever mirrors or replaces the images of image-references has all that run: those of
// the manifests with all components, which are those that the Dockerfile builds, and
// nothing that the operator makes names another one. None is of a registry that could
// exist: a forgotten one must not be pulled from wherever a container runtime looks by
// default.
func TestImageReferencesNameAllImages(t *testing.T) {
	references := imageReferences(t)
	used := map[string]bool{}
	for file, content := range textFiles(t, root, "../../bindata") {
		fields := imageField.FindAllStringSubmatch(content, -1)
		if len(fields) != len(ifOnNode.FindAllString(content, -1)) {
			t.Errorf("%s: an image that is on the node is pulled again", file)
		}
		for _, match := range append(fields, imageEnv.FindAllStringSubmatch(content, -1)...) {
			// The operator's files have the image of its configuration.
			if image := match[1]; strings.HasPrefix(image, "{{") && !strings.Contains(content, "image: {{ json .Image }}") {
				t.Errorf("%s: image %s", file, image)
			} else if !strings.HasPrefix(image, "{{") {
				used[image] = true
			}
		}
	}
	for _, v := range []string{string(v1alpha1.OperatorOpenShift), string(v1alpha1.OperatorKubernetes)} {
		config, err := v1alpha1.DecodeOperator([]byte(v))
		if err != nil {
			t.Fatal(err)
		}
		if config.Image != "" {
			t.Errorf("a shipped configuration has an image, %s, where REPORTER_IMAGE is what a release replaces", config.Image)
		}
	}
	built, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, match := range dockerfile.FindAllStringSubmatch(string(built), -1) {
		want = append(want, "registry.invalid/kms-health-"+match[1]+":latest")
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(used)); !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("the manifests use images %q, want those of the Dockerfile: %q", got, want)
	}
	if !slices.Equal(references, want) {
		t.Errorf("image-references has images %q, want %q", references, want)
	}
}

// imageReferences are the images that a release replaces.
func imageReferences(t *testing.T) (images []string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "openshift/image-references"))
	if err != nil {
		t.Fatal(err)
	}
	var stream struct {
		Spec struct {
			Tags []struct {
				Name string
				From struct{ Kind, Name string }
			}
		}
	}
	if err := yaml.Unmarshal(raw, &stream); err != nil {
		t.Fatal(err)
	}
	for _, tag := range stream.Spec.Tags {
		if tag.From.Kind != "DockerImage" || !strings.Contains(tag.From.Name, "/"+tag.Name+":") {
			t.Errorf("image-references: %+v", tag)
		}
		images = append(images, tag.From.Name)
	}
	slices.Sort(images)
	return images
}

// textFiles are the YAML files of folders and all folders below them, by path.
func textFiles(t *testing.T, folders ...string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".yaml" {
				return err
			}
			content, err := os.ReadFile(path)
			files[path] = string(content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}
