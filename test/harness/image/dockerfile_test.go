package image

import (
	"archive/tar"
	"debug/buildinfo"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/kms-health/kms-health/test/harness/disk"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/harness/program"
)

// An image has copies of the programs' modules. Their licences require that their text is distributed too.
func TestImagesHaveTheLicencesOfTheirPrograms(t *testing.T) {
	root, err := program.Root()
	must.Succeed(t, err)
	for _, name := range Programs {
		t.Run(name, func(t *testing.T) {
			i, err := FromDockerfile(t.Context(), root, name, t.TempDir(), map[string]string{
				"TARGETOS": "linux", "TARGETARCH": runtime.GOARCH,
			})
			must.Succeed(t, err)
			modes, content := map[string]int64{}, map[string]string{}
			layer, err := i.layer()
			must.Succeed(t, err)
			for in := tar.NewReader(layer); ; {
				header, err := in.Next()
				if errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(in)
				must.Succeed(t, err)
				modes[header.Name], content[header.Name] = header.Mode, string(text)
			}
			const folder = "licenses/"
			want := map[string]int64{"kms-health-" + name: 0o755, folder + "LICENSE": 0o644, folder + "THIRD_PARTY_LICENSES": 0o644}
			if !maps.Equal(modes, want) {
				t.Errorf("files and their modes are %v, want %v", modes, want)
			}
			if content[folder+"LICENSE"] != string(disk.Read(t, filepath.Join(root, "LICENSE"))) {
				t.Error("/licenses/LICENSE is not LICENSE")
			}
			info, err := buildinfo.ReadFile(i.Files["/kms-health-"+name])
			must.Succeed(t, err)
			licences := []string{"std " + info.GoVersion}
			for _, module := range info.Deps {
				licences = append(licences, module.Path+" "+module.Version)
				if module.Path == "k8s.io/utils" { // this module has a copy of a part of Go
					licences = append(licences, module.Path+" "+module.Version+"/internal/third_party/forked/golang")
				}
			}
			for _, line := range licences {
				if !strings.Contains(content[folder+"THIRD_PARTY_LICENSES"], "\n"+line+"\n") {
					t.Errorf("/licenses/THIRD_PARTY_LICENSES has no %q", line)
				}
			}
		})
	}
}
