package delivery

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/operator/manifests"
	"github.com/kms-health/kms-health/pkg/operatorcr"
)

// ownObject is an object that was made for the target.
func ownObject(kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"kind": kind}}
	o.SetName("kms-health-reporter-api")
	o.SetLabels(map[string]string{manifests.TargetLabel: "api"})
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
		"another installation":                   {[]func(*Snapshot){onePod, deleting, func(s *Snapshot) { s.OtherInstallation = "x" }}, Blocked, OtherInstallation, false},
		"being removed":                          {[]func(*Snapshot){onePod, deleting}, Gone, Removed, true},
		"being removed, unmanaged":               {[]func(*Snapshot){onePod, deleting, func(s *Snapshot) { s.Unmanaged = true }}, Renewing, "", false},
		"unmanaged":                              {[]func(*Snapshot){onePod, func(s *Snapshot) { s.Unmanaged = true }}, Renewing, "", false},
		"unmanaged, and KMS is off":              {[]func(*Snapshot){onePod, off, func(s *Snapshot) { s.Unmanaged = true }}, Renewing, "", false},
		"no namespace":                           {[]func(*Snapshot){func(s *Snapshot) { s.NamespaceMissing = true }}, Idle, TargetNamespaceMissing, false},
		"pods are not known":                     {[]func(*Snapshot){func(s *Snapshot) { s.Pods = nil }}, Waiting, AwaitingSources, false},
		"KMS is off":                             {[]func(*Snapshot){onePod, off}, Idle, Off, true},
		"KMS is off, and no policy is installed": {[]func(*Snapshot){onePod, off, func(s *Snapshot) { s.PolicyProblem = "none" }}, Idle, Off, true},
		"no policy":                              {[]func(*Snapshot){onePod, func(s *Snapshot) { s.PolicyProblem = "none" }}, Blocked, PolicyMissing, false},
		"the policy was removed later":           {[]func(*Snapshot){onePod, own("ClusterRoleBinding"), func(s *Snapshot) { s.PolicyProblem = "none" }}, Active, "", false},
		"the CA was never read":                  {[]func(*Snapshot){onePod, func(s *Snapshot) { s.CAProblem = "no such file" }}, Waiting, CAUnreadable, false},
		"the CA cannot be read any more":         {[]func(*Snapshot){onePod, func(s *Snapshot) { s.CA, s.CAProblem = []byte("ca"), "no such file" }}, Active, "", false},
		"a third-party reporter": {[]func(*Snapshot){func(s *Snapshot) {
			s.Target.Delivery = v1alpha1.DeliveryAuto
			s.Pods = []*corev1.Pod{apiPod("a", "1", withThirdParty)}
		}}, Idle, ThirdPartyReporter, false},
		"whether ConfigMaps are encrypted is about to be known": {[]func(*Snapshot){onePod, func(s *Snapshot) { s.ConfigMapsPending = true }}, Waiting, AwaitingSources, false},
		"that does not matter where the source is configured":   {[]func(*Snapshot){onePod, configSource(v1alpha1.ConfigSourceAnnotation), func(s *Snapshot) { s.ConfigMapsPending = true }}, Active, "", false},
		"no pod shows where the sockets are":                    {[]func(*Snapshot){func(s *Snapshot) { s.Target.Delivery = v1alpha1.DeliveryAuto }}, Idle, AwaitingPods, false},
		"the plugins of all pods are being read": {[]func(*Snapshot){pods(apiPod("a", "1", revision("5"))), func(s *Snapshot) {
			s.Target.Delivery, s.Encryption.Pending = v1alpha1.DeliveryAuto, map[string]bool{"5": true}
		}}, Waiting, AwaitingSources, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture(t, v1alpha1.DeliveryCompanion, c.change...)
			p := &planner{Snapshot: s, plan: &Plan{}, state: s.State}
			p.record()
			p.findPods()
			i := p.decide()
			if i.phase != c.phase || i.status.Reason != c.reason || i.off != c.off || (i.choice.Delivery != "") != (c.phase == Active) {
				t.Errorf("%+v", i)
			}
		})
	}
}

func TestProblemOfSomethingInForceIsReportedAndChangesNothing(t *testing.T) {
	for want, change := range map[Reason]func(*Snapshot){
		PolicyMissing:     func(s *Snapshot) { s.PolicyProblem = "it was removed" },
		CAUnreadable:      func(s *Snapshot) { s.CAProblem = "no such file" },
		TLSProfileInvalid: func(s *Snapshot) { s.TLSProblem = "no such cipher" },
		SourceUnreadable:  func(s *Snapshot) { s.SourceProblems = []Problem{{SourceUnreadable, "pods: forbidden"}} },
	} {
		withCA := func(s *Snapshot) { s.CA = []byte("ca") }
		first := planOf(t, fixture(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1")), withCA))
		s := fixture(t, v1alpha1.DeliveryCompanion, pods(apiPod("a", "1")), delivered(t, first), withCA, change)
		plan := planOf(t, s)
		if plan.Status.Reason != want || plan.Status.Message == "" {
			t.Errorf("%s: %+v", want, plan.Status)
		}
		if plan.Phase != Active || names(plan.Workloads) != names(first.Workloads) || len(plan.Delete) > 0 {
			t.Errorf("%s: phase %s, %s applied, %s deleted", want, plan.Phase, names(plan.Workloads), names(plan.Delete))
		}
	}
}

func TestRemovalGoesOnWhereSomethingIsLeft(t *testing.T) {
	all := strings.Fields(kinds)
	without := func(kind string) func(*Snapshot) { return func(s *Snapshot) { s.OwnKnown[kind] = false } }
	deleting := func(s *Snapshot) { s.Deleting = true }
	for name, c := range map[string]struct {
		change  []func(*Snapshot)
		last    Phase
		phase   Phase
		unknown string
	}{
		"everything":             {[]func(*Snapshot){own(all...)}, Gone, RemovingWorkloads, ""},
		"an injected Deployment": {[]func(*Snapshot){func(s *Snapshot) { s.Deployment, s.Injected = deployment(1), true }}, Gone, RemovingWorkloads, ""},
		"a Deployment as it was before its injection": {[]func(*Snapshot){func(s *Snapshot) {
			s.Deployment, s.State.Injected = deployment(1), &Injected{Deployment: "apiserver", UID: "d", Generation: 2}
		}}, Gone, RemovingWorkloads, ""},
		"a Deployment of the same name that is another": {[]func(*Snapshot){func(s *Snapshot) {
			s.Deployment, s.State.Injected = deployment(1), &Injected{Deployment: "apiserver", UID: "other", Generation: 2}
		}}, Gone, Gone, ""},
		"a DaemonSet":                                  {[]func(*Snapshot){own("DaemonSet", "ConfigMap")}, Gone, RemovingWorkloads, ""},
		"pods are not known":                           {[]func(*Snapshot){without("Pod"), own("ConfigMap")}, Gone, RemovingWorkloads, "Pod"},
		"a ConfigMap":                                  {[]func(*Snapshot){own("ConfigMap", "ServiceAccount")}, Gone, RemovingMounts, ""},
		"ConfigMaps are not known":                     {[]func(*Snapshot){without("ConfigMap")}, Gone, RemovingMounts, "ConfigMap"},
		"a Secret":                                     {[]func(*Snapshot){func(s *Snapshot) { s.State.Secrets = []string{"x"} }}, Gone, RemovingMounts, ""},
		"a ServiceAccount":                             {[]func(*Snapshot){own("ServiceAccount", "ClusterRole")}, Gone, RemovingIdentities, ""},
		"ClusterRoleBindings are not known":            {[]func(*Snapshot){without("ClusterRoleBinding")}, Gone, RemovingIdentities, "ClusterRoleBinding"},
		"the Role by which the Secret is read":         {[]func(*Snapshot){own("Role")}, Gone, Gone, ""},
		"the Role of a target that is removed":         {[]func(*Snapshot){own("Role"), deleting}, Gone, RemovingIdentities, ""},
		"the Role of a target with plugins of its own": {[]func(*Snapshot){own("Role"), func(s *Snapshot) { s.Target.Plugins = set(1).Plugins }}, Gone, RemovingIdentities, ""},
		"reports":                           {[]func(*Snapshot){own("ClusterRole"), func(s *Snapshot) { s.ReportsLeft = true }}, Gone, RemovingReports, ""},
		"ClusterRoles are not known":        {[]func(*Snapshot){without("ClusterRole")}, Gone, RemovingReports, "ClusterRole"},
		"the KMSHealth":                     {[]func(*Snapshot){own("ClusterRole"), kmsHealth}, Gone, RemovingDestination, ""},
		"the KMSHealth of an idle target":   {[]func(*Snapshot){own("ClusterRole"), kmsHealth}, Idle, Idle, ""},
		"an operator resource":              {[]func(*Snapshot){func(s *Snapshot) { s.Resource = &operatorcr.Status{} }}, Gone, Gone, ""},
		"the ClusterRole":                   {[]func(*Snapshot){own("ClusterRole")}, Gone, Gone, ""},
		"nothing":                           {nil, Gone, Gone, ""},
		"the ClusterRole of an idle target": {[]func(*Snapshot){own("ClusterRole"), func(s *Snapshot) { s.ReportsLeft = true }}, Idle, Idle, ""},
		"a pod of an idle target":           {[]func(*Snapshot){own("Pod")}, Idle, RemovingWorkloads, ""},
	} {
		s := fixture(t, v1alpha1.DeliveryCompanion, c.change...)
		if phase, unknown := s.removalPhase(intent{phase: c.last, clean: c.last == Gone}); phase != c.phase || unknown != c.unknown {
			t.Errorf("%s: phase %s, unknown %q", name, phase, unknown)
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
		plan := planOf(t, fixture(t, v1alpha1.DeliveryCompanion, c.change...))
		if created(plan) != c.want {
			t.Errorf("%s: %s applied", name, names(plan.Apply))
		}
	}
	s := fixture(t, v1alpha1.DeliveryCompanion, own("ClusterRole"), kmsHealth, func(s *Snapshot) { s.Deleting = true })
	plan := planOf(t, s)
	if got := names(plan.Delete); got != "KMSHealth/api" || plan.Delete[0].GetUID() != "health" || !plan.Clean || plan.RemoveCondition {
		t.Errorf("%s deleted: %+v", got, plan)
	}
	s.Resource = nil
	if got := names(planOf(t, s).Delete); !strings.HasPrefix(got, "ClusterRole/") {
		t.Errorf("%s deleted", got)
	}
}

func TestRemovalWaitsForAKindThatCannotBeListed(t *testing.T) {
	s := fixture(t, v1alpha1.DeliveryCompanion, own("ServiceAccount", "ClusterRole"), func(s *Snapshot) {
		s.Deleting, s.OwnKnown["ConfigMap"], s.OwnProblems = true, false, map[string]string{"ConfigMap": "forbidden"}
	})
	if plan := planOf(t, s); len(plan.Delete) > 0 || plan.Status.Reason != SourceUnreadable || !strings.Contains(plan.Status.Message, "ConfigMap") || plan.Clean {
		t.Errorf("%s deleted; %+v", names(plan.Delete), plan.Status)
	}
}

func TestConditionStaysWhileTheNamespaceIsMissing(t *testing.T) {
	s := fixture(t, v1alpha1.DeliveryCompanion, own("ClusterRole"), func(s *Snapshot) { s.NamespaceMissing, s.Pods = true, []*corev1.Pod{} })
	for range 2 {
		plan := planOf(t, s)
		if plan.RemoveCondition || plan.Status.Reason != TargetNamespaceMissing || !strings.Contains(plan.Status.Message, "namespace ns") {
			t.Errorf("remove condition %v, %+v", plan.RemoveCondition, plan.Status)
		}
		if slices.ContainsFunc(plan.Apply, func(o *unstructured.Unstructured) bool { return o.GetNamespace() == "ns" }) {
			t.Errorf("%s applied", names(plan.Apply))
		}
		s.Own = nil
	}
}
