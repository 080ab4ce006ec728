package podspec

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// anyPod makes a pod that has no part of ours, and in which the socket of
// endpoint can be found.
func anyPod(r *rand.Rand) corev1.PodTemplateSpec {
	var p corev1.PodTemplateSpec
	if r.IntN(3) > 0 {
		p.Annotations = map[string]string{}
		for i := range r.IntN(3) {
			p.Annotations[fmt.Sprintf("example.com/%d", i)] = "x"
		}
	}
	sources := []corev1.VolumeSource{
		{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}},
		{HostPath: &corev1.HostPathVolumeSource{Path: "/var/run/kmsplugin"}},
		{ConfigMap: &corev1.ConfigMapVolumeSource{Optional: pointer(true)}},
		{Secret: &corev1.SecretVolumeSource{SecretName: "s"}},
	}
	if r.IntN(3) == 0 {
		p.Spec.Volumes = []corev1.Volume{}
	}
	for i := range r.IntN(4) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("v%d", i), VolumeSource: sources[r.IntN(len(sources))]})
	}
	container := func(name string) corev1.Container {
		c := corev1.Container{Name: name, Image: "i"}
		for i := range p.Spec.Volumes {
			if r.IntN(2) == 0 {
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: p.Spec.Volumes[i].Name, MountPath: fmt.Sprintf("/mnt/%d", i)})
			}
		}
		return c
	}
	for i := range r.IntN(3) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, container(fmt.Sprintf("init-%d", i)))
	}
	for i := range 1 + r.IntN(3) {
		p.Spec.Containers = append(p.Spec.Containers, container(fmt.Sprintf("c%d", i)))
	}
	p.Spec.HostNetwork = r.IntN(2) == 0
	p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "sockets", MountPath: "/var/run/kmsplugin"})
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "sockets", VolumeSource: sources[r.IntN(2)]})
	return p
}

func anyOptions(r *rand.Rand) Options {
	o := inDeployment()
	if r.IntN(2) == 0 {
		o = inStaticPod()
		if r.IntN(2) == 0 {
			o.HostFiles.CredentialsFolder = ""
		}
	} else if r.IntN(2) == 0 {
		o.Secret = ""
	}
	if r.IntN(2) == 0 {
		o.ConfigHash = fmt.Sprint(r.IntN(9))
	} else if r.IntN(2) == 0 {
		o.ConfigHash = ""
	}
	if r.IntN(2) == 0 {
		o.Endpoints = append(o.Endpoints, "unix:///@abstract", "unix:///var/run/kmsplugin/deep/kms-1.sock")
	}
	return o
}

func TestForAnyPodAndOptions(t *testing.T) {
	same := func(t *testing.T, what string, want, got *corev1.PodTemplateSpec) {
		t.Helper()
		if !apiequality.Semantic.DeepEqual(want, got) {
			t.Errorf("%s (-want +got):\n%s", what, cmp.Diff(want, got))
		}
	}
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 0))
		before, earlier, o := anyPod(r), anyOptions(r), anyOptions(r)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			given := before.DeepCopy()
			once := *given.DeepCopy()
			inject(t, &once.ObjectMeta, &once.Spec, o)
			if Injected(&given.Spec) || !Injected(&once.Spec) {
				t.Error("Injected is wrong")
			}

			twice := once.DeepCopy()
			inject(t, &twice.ObjectMeta, &twice.Spec, o)
			same(t, "twice is once", &once, twice)

			replaced := given.DeepCopy()
			inject(t, &replaced.ObjectMeta, &replaced.Spec, earlier)
			inject(t, &replaced.ObjectMeta, &replaced.Spec, o)
			replaced.Spec.Volumes = byName(replaced.Spec.Volumes)
			fresh := once.DeepCopy()
			fresh.Spec.Volumes = byName(fresh.Spec.Volumes)
			same(t, "replacing is injecting", fresh, replaced)

			removeOurs(&once)
			same(t, "others' parts are as before", given, &once)
		})
	}
}

func TestAnyDeploymentsManifestIsInjectedAsItsTemplateIs(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: anyPod(r)}}
		d.APIVersion, d.Kind = "apps/v1", "Deployment"
		earlier, o := anyOptions(r), anyOptions(r)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			manifest, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			got := fromYAML[appsv1.Deployment](t, injectManifest(t, injectManifest(t, string(manifest), earlier), o))
			inject(t, &d.Spec.Template.ObjectMeta, &d.Spec.Template.Spec, earlier)
			inject(t, &d.Spec.Template.ObjectMeta, &d.Spec.Template.Spec, o)
			if !apiequality.Semantic.DeepEqual(d, got) {
				t.Errorf("(-want +got):\n%s", cmp.Diff(d, got))
			}
		})
	}
}

// byName sorts volumes: an injection that needs one more puts it last.
func byName(volumes []corev1.Volume) []corev1.Volume {
	return slices.SortedFunc(slices.Values(volumes), func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) })
}
