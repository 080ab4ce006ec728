package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/version"
)

// Of the configuration files only the fields that are compared are read, so that files of
// other versions can be, too. That the operator accepts its own file is checked as it does.

// configured are the operator's targets: of its configuration if that can be read, else the
// shipped ones.
func (s *Snapshot) configured() []Configured {
	all, _ := s.configuredIn()
	return all
}

// configuredIn also reports whether the configuration was read.
func (s *Snapshot) configuredIn() (all []Configured, read bool) {
	var c struct {
		Targets []Configured `json:"apiServers"`
	}
	if o := s.operatorConfig(); o == nil || yaml.Unmarshal([]byte(dataOf(o)), &c) != nil {
		for _, r := range contract.Resources {
			all = append(all, Configured{r.APIServer.Name, r.Plural, r.APIServer.Namespace})
		}
		return all, false
	}
	for i := range c.Targets {
		t := &c.Targets[i]
		if row := contract.ResourceOf(t.Resource).APIServer; row.Name != "" {
			t.Name, t.Namespace = row.Name, cmp.Or(t.Namespace, row.Namespace)
		}
	}
	return c.Targets, true
}

// operatorConfig is the ConfigMap with the operator's file; nil: not there, or not read.
func (s *Snapshot) operatorConfig() *unstructured.Unstructured {
	for _, o := range s.Objects {
		if o.GetKind() == "ConfigMap" && o.GetName() == contract.OperatorConfigMap {
			return o
		}
	}
	return nil
}

// managementState is that of a valid file of the operator; empty: it is not valid, or not read.
func (s *Snapshot) managementState() v1alpha1.ManagementState {
	if o := s.operatorConfig(); o != nil {
		if c, err := v1alpha1.DecodeOperator([]byte(dataOf(o))); err == nil {
			return c.ManagementState
		}
	}
	return ""
}

// invalid reports a file that the operator rejects, which its ClusterOperator shows only later.
func (s *Snapshot) invalid() []Finding {
	o := s.operatorConfig()
	if o == nil {
		return nil
	}
	_, err := v1alpha1.DecodeOperator([]byte(dataOf(o)))
	if err == nil {
		return nil
	}
	return []Finding{{Check: Configuration, Status: Error, Reason: "ConfigurationInvalid",
		Found: fmt.Sprintf("ConfigMap %s/%s is invalid by version %s of this command: %s; an operator that has read a valid one keeps that", o.GetNamespace(), o.GetName(), version.Version, bounded(err.Error())),
		Next: []view.Step{
			{Text: "Correct it:", Command: fmt.Sprintf("kubectl edit configmap -n %s %s", named(o.GetNamespace(), "NAMESPACE"), contract.OperatorConfigMap)},
			{Text: "A newer operator may know more fields: use its version of this command."},
		}}}
}

func dataOf(configMap *unstructured.Unstructured) string {
	text, _, _ := unstructured.NestedString(configMap.Object, "data", contract.ConfigFile)
	return text
}

// file is a reporter's configuration file in a ConfigMap.
type file struct {
	configMap string
	data      string
	interval  time.Duration
	keys      []string // sorted; nil: not known
}

func readFile(o *unstructured.Unstructured) (f file, err error) {
	f = file{configMap: o.GetName(), data: dataOf(o), interval: contract.DefaultInterval}
	var c struct {
		Probe struct {
			Interval *metav1.Duration `json:"interval"`
		} `json:"probe"`
		Plugins []struct {
			KeyID string `json:"keyID"`
		} `json:"plugins"`
	}
	if err := yaml.Unmarshal([]byte(f.data), &c); err != nil {
		return f, err
	}
	if c.Probe.Interval != nil {
		f.interval = c.Probe.Interval.Duration
	}
	for _, p := range c.Plugins {
		if p.KeyID == "" { // the reporter derives it from the socket's name
			return f, nil
		}
		f.keys = append(f.keys, p.KeyID)
	}
	slices.Sort(f.keys)
	return f, nil
}

// fileOf is the file that a pod was made for; nil: there is none. Of those with the same
// plugin set, and other roles, it is the one that the pod mounts or has a copy of.
func fileOf(pod *unstructured.Unstructured, files []file) (found *file) {
	mounted := ""
	volumes, _, _ := unstructured.NestedSlice(pod.Object, "spec", "volumes")
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		if name, _, _ := unstructured.NestedString(volume, "configMap", "name"); strings.HasPrefix(name, contract.ReporterName("")) {
			mounted = name
		}
	}
	for i := range files {
		f := &files[i]
		if !contract.HasPluginSet(f.configMap, pod.GetAnnotations()[contract.ConfigHashAnnotation]) || mounted != "" && mounted != f.configMap {
			continue
		}
		if found == nil || pod.GetAnnotations()[contract.ConfigAnnotation] == f.data {
			found = f
		}
	}
	return found
}

// configuration compares the ConfigMaps, the pods that were made for them, and the reports.
func (e *evaluation) configuration() []Finding {
	all := e.invalid()
	for i := range e.targets {
		t := &e.targets[i]
		if t.configured == nil {
			continue
		}
		all = append(all, t.configuration()...)
	}
	return all
}

func (t *target) configuration() []Finding {
	if t.unread != nil {
		if !t.status.Expected() {
			return nil
		}
		return []Finding{t.finding(Configuration, Unknown, string(t.unread.Why), t.unread.what()+" could not be read, so what the reporters run with is not known")}
	}
	var files []file
	var all []Finding
	for _, o := range t.configMaps {
		f, err := readFile(o)
		if err != nil {
			all = append(all, t.finding(Configuration, Warning, "ConfigMapInvalid", fmt.Sprintf("ConfigMap %s/%s has no %s that can be read", o.GetNamespace(), o.GetName(), contract.ConfigFile), operatorLog(t.namespace)))
			continue
		}
		files = append(files, f)
	}
	if len(t.pods) == 0 && len(files) == 0 {
		return all
	}
	c := comparison{target: t, differing: map[string][]string{}, used: map[string]bool{}}
	for _, pod := range t.pods {
		c.compare(pod, files)
	}
	all = append(all, c.findings()...)
	if len(all) > 0 {
		return all
	}
	return []Finding{t.finding(Configuration, OK, "", c.summary(files))}
}

// comparison is that of the pods of a target with the ConfigMaps and the reports.
type comparison struct {
	*target
	differing map[string][]string // nodes, by reason
	used      map[string]bool     // ConfigMaps
	compared  []string            // nodes whose reports were compared
}

// The reasons of Configuration.
const (
	hashMissing      = "HashMissing"
	configMapMissing = "ConfigMapMissing"
	copyDiffers      = "CopyDiffers"
	intervalDiffers  = "IntervalDiffers"
	keysDiffer       = "KeysDiffer"
)

func (c *comparison) add(reason, node string) {
	if !slices.Contains(c.differing[reason], node) {
		c.differing[reason] = append(c.differing[reason], node)
	}
}

func (c *comparison) compare(pod *unstructured.Unstructured, files []file) {
	node := nodeOf(pod)
	f := fileOf(pod, files)
	switch {
	case pod.GetAnnotations()[contract.ConfigHashAnnotation] == "":
		c.add(hashMissing, node)
		return
	case f == nil:
		c.add(configMapMissing, node)
		return
	}
	c.used[f.configMap] = true
	if copied, is := pod.GetAnnotations()[contract.ConfigAnnotation]; is && copied != f.data {
		c.add(copyDiffers, node)
	}
	var keys []string
	for _, p := range c.status.Plugins {
		// What is old, or of another's reporter, is not about this pod.
		if p.Node != node || p.LastChecked == nil || p.State != "healthy" && !p.State.Unhealthy() || p.Ours != nil && !*p.Ours {
			continue
		}
		keys = append(keys, p.KeyID)
		if want := int64((f.interval + time.Second - 1) / time.Second); p.IntervalSeconds != 0 && p.IntervalSeconds != want {
			c.add(intervalDiffers, node)
		}
	}
	if keys == nil {
		return
	}
	c.compared = append(c.compared, node)
	if slices.Sort(keys); f.keys != nil && !slices.Equal(keys, f.keys) {
		c.add(keysDiffer, node)
	}
}

var differences = map[string]string{
	hashMissing:      "the reporter's pod has no annotation " + contract.ConfigHashAnnotation + ", so a change of the plugins does not replace it",
	configMapMissing: "no ConfigMap has the plugin set that the reporter's pod was made for",
	copyDiffers:      "the pod's copy of the file, in its annotation " + contract.ConfigAnnotation + ", differs from the ConfigMap",
	intervalDiffers:  "the reports have another interval than the ConfigMap",
	keysDiffer:       "the reports are about other keys than the ConfigMap",
}

func (c *comparison) findings() (all []Finding) {
	for _, reason := range slices.Sorted(maps.Keys(c.differing)) {
		slices.Sort(c.differing[reason])
		f := c.finding(Configuration, Warning, reason, fmt.Sprintf("%s: %s", nodes(c.differing[reason]), differences[reason]),
			view.Step{Text: "During a rollout, and for an interval after a change, wait. Then see the ConfigMaps and the annotations of the pods:",
				Command: fmt.Sprintf("kubectl get configmaps,pods -A -l %s=%s -o yaml", contract.APIServerLabel, named(c.configured.Name, "TARGET"))},
			operatorLog(c.namespace))
		f.Nodes = c.differing[reason]
		all = append(all, f)
	}
	return all
}

func (c *comparison) summary(files []file) string {
	if len(c.pods) == 0 {
		return plural(len(files), "ConfigMap, and no pod that uses it", "ConfigMaps, and no pod that uses them")
	}
	var parts []string
	for _, f := range files {
		if c.used[f.configMap] {
			parts = append(parts, fmt.Sprintf("%s (every %s; %s)", f.configMap, f.interval, keyNames(f.keys)))
		}
	}
	slices.Sort(c.compared)
	reports := "no report is fresh"
	if n := len(slices.Compact(c.compared)); n > 0 {
		reports = "so do the reports of " + plural(n, "node", "nodes")
	}
	return fmt.Sprintf("the annotations of %s match ConfigMap %s; %s", plural(len(c.pods), "pod", "pods"), strings.Join(parts, ", "), reports)
}
