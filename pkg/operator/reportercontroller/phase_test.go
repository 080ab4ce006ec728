package reportercontroller

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/encryptionconfig"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// ownObject returns an object that the operator created for the target.
func ownObject(kind, namespace string) *unstructured.Unstructured {
	o := object("v1", kind, namespace, "kms-health-reporter-api")
	o.SetLabels(map[string]string{contract.APIServerLabel: "api"})
	return o
}

// own adds objects that are cluster-scoped, or in neither namespace; ownInTarget, objects in the target's namespace.
func own(kinds ...string) func(*Snapshot) { return ownIn("", kinds) }

func ownInTarget(kinds ...string) func(*Snapshot) { return ownIn("ns", kinds) }

func ownIn(namespace string, kinds []string) func(*Snapshot) {
	return func(s *Snapshot) {
		for _, kind := range kinds {
			s.Own = append(s.Own, ownObject(kind, namespace))
		}
	}
}

func off(s *Snapshot) { s.Sets[liveRevision] = *set() }

func deleting(s *Snapshot) { s.Deleting = true }

func unmanaged(s *Snapshot) { s.Unmanaged = true }

// delivers reports whether a plan has reporters.
func delivers(plan *Plan) bool {
	return len(workloads(plan)) > 0 || plan.Token || plan.Inject != nil
}

func TestPlanFollowsFromWhatIsObserved(t *testing.T) {
	type change = func(*Snapshot)
	onePod := pods(apiPod("a", "1"))
	noPolicy := func(s *Snapshot) { s.add(contract.PolicyMissing, "none") }
	auto := func(s *Snapshot) { s.Target.Mode = v1alpha1.ModeAuto }
	for name, c := range map[string]struct {
		change   []change
		delivers bool
		reason   delivery.Reason
		off      bool
	}{
		"reporters are wanted":                   {[]change{onePod}, true, contract.AsExpected, false},
		"being removed":                          {[]change{onePod, deleting}, false, contract.Removed, true},
		"being removed, unmanaged":               {[]change{onePod, deleting, unmanaged}, false, contract.Unmanaged, false},
		"unmanaged":                              {[]change{onePod, unmanaged}, false, contract.Unmanaged, false},
		"unmanaged, and KMS is off":              {[]change{onePod, off, unmanaged}, false, contract.Unmanaged, false},
		"KMS is off":                             {[]change{onePod, off}, false, contract.Off, true},
		"KMS is off, and no policy is installed": {[]change{onePod, off, noPolicy}, false, contract.Off, true},
		"no policy":                              {[]change{onePod, noPolicy}, false, contract.PolicyMissing, false},
		"no pod shows where the sockets are":     {[]change{auto}, false, contract.NoPods, false},
		"no pod runs, and the mode is given":     {nil, false, contract.NoPods, false},
		"the plugins of all pods are being read": {[]change{pods(apiPod("a", "1", revision("5"))), auto}, false,
			contract.Progressing, false},
		// A problem that appears later does not stop an active delivery.
		"the policy was removed later": {[]change{onePod, own("ClusterRoleBinding"), noPolicy}, true,
			contract.PolicyMissing, false},
		"the TLS profile is invalid": {[]change{onePod, func(s *Snapshot) { s.add(contract.TLSProfileInvalid, "no such cipher") }},
			true, contract.TLSProfileInvalid, false},
		"the Secret was never valid": {[]change{onePod, func(s *Snapshot) {
			s.Sets[liveRevision] = encryptionconfig.Set{}
			s.add(contract.EncryptionConfigUnreadable, "not YAML")
		}}, false, contract.EncryptionConfigUnreadable, false},
		"a source is refused": {[]change{onePod, func(s *Snapshot) {
			s.SourceProblems = []delivery.Status{{Reason: contract.SourceUnreadable, Message: "pods: forbidden"}}
		}}, true, contract.SourceUnreadable, false},
	} {
		plan := ComputePlan(fixture(t, v1alpha1.ModeCompanionPod, c.change...))
		if delivers(plan) != c.delivers || plan.Status.Reason != c.reason || plan.Off != c.off || len(plan.Delete) > 0 {
			t.Errorf("%s: delivers %s, deletes %s, off %t, %+v", name, names(workloads(plan)), names(plan.Delete), plan.Off,
				plan.Status)
		}
	}
}

// noConfigMaps means that ConfigMaps cannot be listed.
func noConfigMaps(reason delivery.Reason, why string) func(*Snapshot) {
	return func(s *Snapshot) { s.Unlisted = &delivery.Status{Reason: reason, Message: why} }
}

// injected means that the reporter is in the Deployment. The cache still shows the Deployment before the injection.
func injected(s *Snapshot) {
	s.Deployment, s.State.Injected = deployment(1), &delivery.Injected{Deployment: "apiserver"}
}

// unrecorded means that the reporter is in the Deployment, and that the record was deleted.
func unrecorded(s *Snapshot) {
	inDeployment(s)
	s.Target.Mode, s.Deployment = v1alpha1.ModeSidecar, deployment(1)
	s.Deployment.Spec.Template.Spec = apiPod("", "", withReporter).Spec
}

// Objects that nothing needs are deleted at once, even if others cannot be deleted or listed.
func TestRemovalDeletesWhatNothingNeeds(t *testing.T) {
	type change = func(*Snapshot)
	const removing = contract.Removing
	for name, c := range map[string]struct {
		change []change
		reason delivery.Reason
		want   string // kinds
		clean  bool
	}{
		"everything": {[]change{own("Pod", "DaemonSet", "ConfigMap", "ServiceAccount", "ClusterRoleBinding", "ClusterRole",
			"Role"), deleting}, removing, "ConfigMap DaemonSet Pod Role ServiceAccount", false},
		"an injected Deployment": {[]change{injected,
			ownInTarget("ConfigMap", "ServiceAccount", "ClusterRoleBinding"), deleting}, removing, "", false},
		"an injected Deployment whose record was deleted": {[]change{unrecorded, deleting}, removing, "", false},
		"a DaemonSet, by which its pods go": {[]change{own("DaemonSet", "Pod", "ClusterRoleBinding"), func(s *Snapshot) {
			s.own("Pod")[0].SetLabels(map[string]string{contract.ModeLabel: "DaemonSet"})
		}, deleting}, removing, "DaemonSet", false},
		"ConfigMaps are not known": {[]change{noConfigMaps(removing, ""), own("ServiceAccount", "ClusterRoleBinding",
			"ClusterRole"), deleting}, removing, "ClusterRoleBinding ServiceAccount", false},
		"ConfigMaps cannot be listed": {[]change{noConfigMaps(contract.SourceUnreadable, "forbidden"),
			own("ServiceAccount", "ClusterRole"), deleting}, contract.SourceUnreadable, "ServiceAccount", true},
		"a ServiceAccount":                     {[]change{own("ServiceAccount", "ClusterRole"), deleting}, removing, "ServiceAccount", true},
		"a ConfigMap":                          {[]change{own("ConfigMap", "ClusterRole"), deleting}, removing, "ConfigMap", true},
		"the Role of a target that is removed": {[]change{own("Role"), deleting}, removing, "Role", true},
		"the Role by which the Secret is read": {[]change{own("Role"), off}, contract.Off, "", true},
		"reports": {[]change{own("ClusterRole"), deleting, func(s *Snapshot) { s.ReportsLeft = true }},
			removing, "", true},
		"the KMSHealth":                   {[]change{own("ClusterRole"), kmsHealth, deleting}, removing, "KMSHealth", true},
		"the KMSHealth of an idle target": {[]change{own("ClusterRole"), kmsHealth, off}, contract.Off, "", true},
		"an operator resource":            {[]change{deleting, reports()}, contract.Removed, "", true},
		"the ClusterRole":                 {[]change{own("ClusterRole"), deleting}, removing, "ClusterRole", true},
		"nothing":                         {[]change{deleting}, contract.Removed, "", true},
		"the ClusterRole of an idle one":  {[]change{own("ClusterRole"), off}, contract.Off, "", true},
		"a pod of an idle one":            {[]change{own("Pod", "ClusterRoleBinding", "ClusterRole"), off}, removing, "Pod", false},
		"the same, as a ServiceAccount": {[]change{ownIn("kms-health", []string{"Pod", "ServiceAccount"}), off},
			removing, "Pod", false},
	} {
		plan := ComputePlan(fixture(t, v1alpha1.ModeCompanionPod, c.change...))
		got := regexp.MustCompile("/[^ ]*").ReplaceAllString(names(plan.Delete), "")
		if got != c.want || plan.Status.Reason != c.reason || plan.Clean != c.clean {
			t.Errorf("%s: %+v deletes %q, clean %t; want %s, %q, clean %t", name, plan.Status, got, plan.Clean, c.reason,
				c.want, c.clean)
		}
	}
}

// kmsHealth makes the target's reports go to a KMSHealth, which exists.
func kmsHealth(s *Snapshot) {
	s.Target.Resource, s.Resource = v1alpha1.ResourceKMSHealths, &operatorstatus.Status{UID: "health"}
}

func TestKMSHealthIsCreatedWhereItIsMissingAndDeletedLast(t *testing.T) {
	type changes = []func(*Snapshot)
	missing := func(s *Snapshot) { kmsHealth(s); s.Resource, s.ResourceMissing = nil, true }
	onePod := pods(apiPod("a", "1"))
	for name, c := range map[string]struct {
		change changes
		want   bool
	}{
		"missing":                         {changes{missing, onePod}, true},
		"missing, and KMS is off":         {changes{missing, off}, true},
		"there":                           {changes{kmsHealth, onePod}, false},
		"unmanaged":                       {changes{missing, unmanaged}, false},
		"being removed":                   {changes{missing, deleting}, false},
		"missing, and nothing is decided": {changes{missing, undecided}, true},
		"of another installation":         {changes{missing, func(s *Snapshot) { s.OtherInstallation = "x" }}, false},
		"an operator resource":            {changes{onePod, func(s *Snapshot) { s.ResourceMissing = true }}, false},
	} {
		plan := ComputePlan(fixture(t, v1alpha1.ModeCompanionPod, c.change...))
		if strings.Contains(names(plan.Apply), "KMSHealth") != c.want {
			t.Errorf("%s: %s applied", name, names(plan.Apply))
		}
	}
	s := fixture(t, v1alpha1.ModeCompanionPod, own("ClusterRole"), kmsHealth, deleting)
	plan := deletes(t, s, "once reports are removed", "KMSHealth/api", contract.Removing)
	if plan.Delete[0].GetUID() != "health" || !plan.Clean {
		t.Errorf("%+v", plan)
	}
	s.Resource = nil
	deletes(t, s, "last", "ClusterRole/kms-health-reporter-api", contract.Removing)
}

func TestConditionStaysWhileTheNamespaceIsMissing(t *testing.T) {
	s := fixture(t, v1alpha1.ModeCompanionPod, own("ClusterRole", "Pod"), func(s *Snapshot) { s.NamespaceMissing = true })
	for range 2 {
		plan := ComputePlan(s)
		if plan.Off || plan.Status.Reason != contract.NamespaceMissing || !strings.Contains(plan.Status.Message, "ns") ||
			slices.ContainsFunc(plan.Apply, func(o *unstructured.Unstructured) bool { return o.GetNamespace() == "ns" }) {
			t.Errorf("off %v, %+v, %s applied", plan.Off, plan.Status, names(plan.Apply))
		}
		s.Own = nil
	}
}
