package apiserver

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// ownObject is an object that was made for the target.
func ownObject(kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"kind": kind}}
	o.SetName("kms-health-reporter-api")
	o.SetLabels(map[string]string{contract.APIServerLabel: "api"})
	return o
}

func own(kinds ...string) func(*Snapshot) {
	return func(s *Snapshot) {
		for _, kind := range kinds {
			s.Own = append(s.Own, ownObject(kind))
		}
	}
}

func TestPhaseFollowsFromWhatIsObserved(t *testing.T) {
	onePod := pods(apiPod("a", "1"))
	off := func(s *Snapshot) { s.Encryption.Live = set() }
	deleting := func(s *Snapshot) { s.Deleting = true }
	for name, c := range map[string]struct {
		change []func(*Snapshot)
		phase  Phase
		reason Reason // of the status, where the target is not Active
		off    bool
	}{
		"reporters are wanted":                   {[]func(*Snapshot){onePod}, Active, "", false},
		"being removed":                          {[]func(*Snapshot){onePod, deleting}, Gone, contract.Removed, true},
		"being removed, unmanaged":               {[]func(*Snapshot){onePod, deleting, func(s *Snapshot) { s.Unmanaged = true }}, Renewing, "", false},
		"unmanaged":                              {[]func(*Snapshot){onePod, func(s *Snapshot) { s.Unmanaged = true }}, Renewing, "", false},
		"unmanaged, and KMS is off":              {[]func(*Snapshot){onePod, off, func(s *Snapshot) { s.Unmanaged = true }}, Renewing, "", false},
		"no namespace":                           {[]func(*Snapshot){func(s *Snapshot) { s.NamespaceMissing = true }}, Idle, contract.NamespaceMissing, false},
		"pods are not known":                     {[]func(*Snapshot){func(s *Snapshot) { s.Pods = nil }}, Waiting, contract.Progressing, false},
		"KMS is off":                             {[]func(*Snapshot){onePod, off}, Idle, contract.Off, true},
		"KMS is off, and no policy is installed": {[]func(*Snapshot){onePod, off, func(s *Snapshot) { s.PolicyProblem = "none" }}, Idle, contract.Off, true},
		"no policy":                              {[]func(*Snapshot){onePod, func(s *Snapshot) { s.PolicyProblem = "none" }}, Waiting, contract.PolicyMissing, false},
		"the policy was removed later":           {[]func(*Snapshot){onePod, own("ClusterRoleBinding"), func(s *Snapshot) { s.PolicyProblem = "none" }}, Active, "", false},
		"the CA was never read":                  {[]func(*Snapshot){onePod, func(s *Snapshot) { s.CAProblem = "no such file" }}, Waiting, contract.CAUnreadable, false},
		"the CA cannot be read any more":         {[]func(*Snapshot){onePod, func(s *Snapshot) { s.CA, s.CAProblem = []byte("ca"), "no such file" }}, Active, "", false},
		"no pod shows where the sockets are":     {[]func(*Snapshot){func(s *Snapshot) { s.Target.Mode = v1alpha1.ModeAuto }}, Idle, contract.NoPods, false},
		"the plugins of all pods are being read": {[]func(*Snapshot){pods(apiPod("a", "1", revision("5"))), func(s *Snapshot) {
			s.Target.Mode, s.Encryption.Pending = v1alpha1.ModeAuto, map[string]bool{"5": true}
		}}, Waiting, contract.Progressing, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture(t, v1alpha1.ModeCompanionPod, c.change...)
			p := &planner{Snapshot: s, plan: &Plan{}, state: s.State}
			p.record()
			p.findPods()
			i := p.decide()
			if i.phase != c.phase || c.phase != Active && i.status.Reason != c.reason || i.off != c.off || (i.mode != "") != (c.phase == Active) {
				t.Errorf("%+v", i)
			}
		})
	}
}

func TestProblemOfSomethingActiveIsReportedAndChangesNothing(t *testing.T) {
	for want, change := range map[Reason]func(*Snapshot){
		contract.PolicyMissing:     func(s *Snapshot) { s.PolicyProblem = "it was removed" },
		contract.CAUnreadable:      func(s *Snapshot) { s.CAProblem = "no such file" },
		contract.TLSProfileInvalid: func(s *Snapshot) { s.TLSProblem = "no such cipher" },
		contract.SourceUnreadable:  func(s *Snapshot) { s.SourceProblems = []Problem{{contract.SourceUnreadable, "pods: forbidden"}} },
	} {
		withCA := func(s *Snapshot) { s.CA = []byte("ca") }
		first := planOf(t, fixture(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1")), withCA))
		s := fixture(t, v1alpha1.ModeCompanionPod, pods(apiPod("a", "1")), delivered(t, first), withCA, change)
		plan := planOf(t, s)
		if plan.Status.Reason != want || plan.Status.Message == "" {
			t.Errorf("%s: %+v", want, plan.Status)
		}
		if plan.Phase != Active || names(plan.Workloads) != names(first.Workloads) || len(plan.Delete) > 0 {
			t.Errorf("%s: phase %s, %s applied, %s deleted", want, plan.Phase, names(plan.Workloads), names(plan.Delete))
		}
	}
}

// in puts objects of a kind into a namespace.
func in(namespace string, change func(*Snapshot)) func(*Snapshot) {
	return func(s *Snapshot) {
		before := len(s.Own)
		change(s)
		for _, o := range s.Own[before:] {
			o.SetNamespace(namespace)
		}
	}
}

// What is not needed is deleted at once, whatever cannot be deleted, or listed, beside it.
func TestRemovalDeletesWhatNothingNeeds(t *testing.T) {
	const clusterRole = "ClusterRole/kms-health-reporter-api"
	of := func(kinds string) string {
		var all []string
		for _, kind := range strings.Fields(kinds) {
			all = append(all, kind+"/kms-health-reporter-api")
		}
		return strings.Join(all, " ")
	}
	without := func(kind string) func(*Snapshot) { return func(s *Snapshot) { s.OwnKnown[kind] = false } }
	off := func(s *Snapshot) { s.Encryption.Live, s.Target.Plugins = set(), nil }
	deleting := func(s *Snapshot) { s.Deleting = true }
	injected := func(s *Snapshot) { s.Deployment, s.Injected = deployment(1), true }
	token := func(s *Snapshot) { s.State.Token = true }
	for name, c := range map[string]struct {
		change []func(*Snapshot)
		phase  Phase
		want   string
		clean  bool
	}{
		"everything":             {[]func(*Snapshot){own(strings.Fields(kinds)...), deleting}, Removing, of("ConfigMap DaemonSet Pod Role ServiceAccount"), false},
		"an injected Deployment": {[]func(*Snapshot){injected, in("ns", own("ConfigMap", "ServiceAccount", "ClusterRoleBinding")), deleting}, Removing, "", false},
		"a Deployment as it was before its injection": {[]func(*Snapshot){func(s *Snapshot) {
			s.Deployment, s.State.Injected = deployment(1), &Injected{Deployment: "apiserver", UID: "d", Generation: 2}
		}, deleting}, Removing, "", false},
		"a Deployment of the same name that is another": {[]func(*Snapshot){func(s *Snapshot) {
			s.Deployment, s.State.Injected = deployment(1), &Injected{Deployment: "apiserver", UID: "other", Generation: 2}
		}, deleting}, Gone, "", true},
		"a DaemonSet, by which its pods go": {[]func(*Snapshot){own("DaemonSet", "Pod", "ClusterRoleBinding"), func(s *Snapshot) {
			s.own("Pod")[0].SetLabels(map[string]string{contract.ModeLabel: "DaemonSet"})
		}, deleting}, Removing, of("DaemonSet"), false},
		"pods are not known, of which one may mount it": {[]func(*Snapshot){without("Pod"), in("kms-health", own("ConfigMap", "ServiceAccount", "DaemonSet")), deleting}, Removing, of("DaemonSet"), false},
		"ConfigMaps are not known":                      {[]func(*Snapshot){without("ConfigMap"), own("ServiceAccount", "ClusterRoleBinding", "ClusterRole"), deleting}, Removing, of("ClusterRoleBinding ServiceAccount"), false},
		"a Secret, whose token is the ServiceAccount's": {[]func(*Snapshot){token, in("ns", own("ServiceAccount", "ClusterRole")), deleting}, Removing, "", true},
		"a ServiceAccount":                              {[]func(*Snapshot){own("ServiceAccount", "ClusterRole"), deleting}, Removing, of("ServiceAccount"), true},
		"a ConfigMap":                                   {[]func(*Snapshot){own("ConfigMap", "ClusterRole"), deleting}, Removing, of("ConfigMap"), true},
		"the Role of a target that is removed":          {[]func(*Snapshot){own("Role"), deleting}, Removing, of("Role"), true},
		"the Role by which the Secret is read":          {[]func(*Snapshot){own("Role"), off}, Idle, "", true},
		"reports":                                       {[]func(*Snapshot){own("ClusterRole"), deleting, func(s *Snapshot) { s.ReportsLeft = true }}, Removing, "", true},
		"the KMSHealth":                                 {[]func(*Snapshot){own("ClusterRole"), kmsHealth, deleting}, Removing, "KMSHealth/api", true},
		"the KMSHealth of an idle target":               {[]func(*Snapshot){own("ClusterRole"), kmsHealth, off}, Idle, "", true},
		"an operator resource":                          {[]func(*Snapshot){deleting, func(s *Snapshot) { s.Resource = &operatorcr.Status{} }}, Gone, "", true},
		"the ClusterRole":                               {[]func(*Snapshot){own("ClusterRole"), deleting}, Gone, clusterRole, true},
		"nothing":                                       {[]func(*Snapshot){deleting}, Gone, "", true},
		"the ClusterRole of an idle target":             {[]func(*Snapshot){own("ClusterRole"), off}, Idle, "", true},
		"a pod of an idle target":                       {[]func(*Snapshot){own("Pod", "ClusterRoleBinding", "ClusterRole"), off}, Removing, of("Pod"), false},
	} {
		plan := planOf(t, fixture(t, v1alpha1.ModeCompanionPod, c.change...))
		if got := names(plan.Delete); got != c.want || plan.Phase != c.phase || plan.Clean != c.clean {
			t.Errorf("%s: phase %s deletes %q, clean %t; want phase %s, %q, clean %t", name, plan.Phase, got, plan.Clean, c.phase, c.want, c.clean)
		}
	}
}

// kmsHealth is a target with an object of its own for the reports, which exists.
func kmsHealth(s *Snapshot) {
	s.Target.Resource, s.Resource = v1alpha1.ResourceKMSHealths, &operatorcr.Status{UID: "health"}
}

func TestKMSHealthIsCreatedWhereItIsMissingAndDeletedLast(t *testing.T) {
	created := func(plan *Plan) bool {
		return slices.ContainsFunc(plan.Apply, func(o *unstructured.Unstructured) bool { return o.GetKind() == "KMSHealth" })
	}
	missing := func(s *Snapshot) { kmsHealth(s); s.Resource = nil }
	for name, c := range map[string]struct {
		change []func(*Snapshot)
		want   bool
	}{
		"missing":                 {[]func(*Snapshot){missing, pods(apiPod("a", "1"))}, true},
		"missing, and KMS is off": {[]func(*Snapshot){missing, func(s *Snapshot) { s.Encryption = &Encryption{} }}, true},
		"there":                   {[]func(*Snapshot){kmsHealth, pods(apiPod("a", "1"))}, false},
		"unmanaged":               {[]func(*Snapshot){missing, func(s *Snapshot) { s.Unmanaged = true }}, false},
		"being removed":           {[]func(*Snapshot){missing, func(s *Snapshot) { s.Deleting = true }}, false},
		"an operator resource":    {[]func(*Snapshot){pods(apiPod("a", "1"))}, false},
	} {
		plan := planOf(t, fixture(t, v1alpha1.ModeCompanionPod, c.change...))
		if created(plan) != c.want {
			t.Errorf("%s: %s applied", name, names(plan.Apply))
		}
	}
	s := fixture(t, v1alpha1.ModeCompanionPod, own("ClusterRole"), kmsHealth, func(s *Snapshot) { s.Deleting = true })
	plan := planOf(t, s)
	if got := names(plan.Delete); got != "KMSHealth/api" || plan.Delete[0].GetUID() != "health" || !plan.Clean || plan.RemoveCondition {
		t.Errorf("%s deleted: %+v", got, plan)
	}
	s.Resource = nil
	if got := names(planOf(t, s).Delete); !strings.HasPrefix(got, "ClusterRole/") {
		t.Errorf("%s deleted", got)
	}
}

func TestRemovalEndsOnlyWhenEveryKindCanBeListed(t *testing.T) {
	s := fixture(t, v1alpha1.ModeCompanionPod, own("ServiceAccount", "ClusterRole"), func(s *Snapshot) {
		s.Deleting, s.OwnKnown["ConfigMap"], s.OwnProblems = true, false, map[string]string{"ConfigMap": "forbidden"}
	})
	if plan := planOf(t, s); names(plan.Delete) != "ServiceAccount/kms-health-reporter-api" || plan.Status.Reason != contract.SourceUnreadable || !strings.Contains(plan.Status.Message, "ConfigMap") {
		t.Errorf("%s deleted; %+v", names(plan.Delete), plan.Status)
	}
}

func TestConditionStaysWhileTheNamespaceIsMissing(t *testing.T) {
	s := fixture(t, v1alpha1.ModeCompanionPod, own("ClusterRole"), func(s *Snapshot) { s.NamespaceMissing, s.Pods = true, []*corev1.Pod{} })
	for range 2 {
		plan := planOf(t, s)
		if plan.RemoveCondition || plan.Status.Reason != contract.NamespaceMissing || !strings.Contains(plan.Status.Message, "namespace ns") {
			t.Errorf("remove condition %v, %+v", plan.RemoveCondition, plan.Status)
		}
		if slices.ContainsFunc(plan.Apply, func(o *unstructured.Unstructured) bool { return o.GetNamespace() == "ns" }) {
			t.Errorf("%s applied", names(plan.Apply))
		}
		s.Own = nil
	}
}
