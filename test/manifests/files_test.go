package manifests

import (
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
	for _, folder := range []string{"common", "openshift"} {
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

// A forgotten image must not be pulled from wherever a container runtime looks by
// default.
func TestImagesAreOfNoRegistryThatCouldExist(t *testing.T) {
	references, err := os.ReadFile(filepath.Join(root, "openshift/image-references"))
	if err != nil {
		t.Fatal(err)
	}
	deployment, err := os.ReadFile(filepath.Join(root, "common/0000_50_kms-health-operator_10_deployment.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	images := regexp.MustCompile(`registry\.invalid/[a-z-]+:latest`).FindAllString(string(deployment), -1)
	if len(images) != 2 {
		t.Fatalf("images %v", images)
	}
	for _, image := range images {
		if !strings.Contains(string(references), `"`+image+`"`) {
			t.Errorf("a release does not replace %s", image)
		}
	}
}
