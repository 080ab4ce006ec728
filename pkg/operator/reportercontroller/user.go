package reportercontroller

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/pkg/operatorstatus"
)

// startsWithin is for how long a pod that was just seen may have no container yet, of which the node reports
// the user. A reporter's user is fixed with its pod.
const startsWithin = time.Minute

// observeAges adds for how long each pod and API server's container has been seen, and each report as it is. It syncs
// again when a pod of the API server whose user is not known has had its time to start.
func (c *Controller) observeAges(s *Snapshot, e *serverState) {
	now, before := c.Clock.Now(), e.seen
	if e.looked = now; before == nil {
		e.liveSeen = now
	}
	e.seen, s.Seen = map[types.UID]time.Time{}, map[types.UID]time.Duration{}
	see := func(uid types.UID) time.Duration {
		first, known := before[uid]
		if !known {
			first = now
		}
		e.seen[uid], s.Seen[uid] = first, now.Sub(first)
		return s.Seen[uid]
	}
	for _, pod := range s.Pods {
		left := startsWithin - see(pod.UID)
		if _, known := objects.UserOf(pod, s.Target.Container); !known && left > 0 {
			c.Queue.AddAfter(s.Target.Name, left)
		}
		if id := delivery.ContainerStatus(pod, s.Target.Container).ContainerID; id != "" {
			see(types.UID(id))
		}
	}
	for _, pod := range s.own("Pod") {
		see(pod.GetUID())
	}
	s.Unchanged = map[string]time.Duration{}
	if s.Resource != nil {
		for _, r := range e.reports.Observe(now, s.Resource.Reports) {
			if since := now.Sub(r.LastChange()); r.Form == operatorstatus.FormCondition {
				s.Unchanged[r.Node] = since
			}
		}
	}
}

// seenLive is for how long the live set has been seen with this writer, as of the last look: it is compared with the
// ages of containers. The first set is as old as the first look, however late it is read.
func (e *serverState) seenLive(writer string) time.Duration {
	if e.writer != nil && writer != *e.writer {
		e.liveSeen = e.looked
	}
	e.writer = &writer
	return e.looked.Sub(e.liveSeen)
}

// starting reports whether the user of a pod is not known yet, and may be soon.
func (p *planner) starting(a apiServerPod) bool {
	return !a.userKnown && p.Seen[a.pod.UID] < startsWithin
}

// companionUser is the user of the companion that a pod has already.
func (p *planner) companionUser(a apiServerPod) (contract.User, bool) {
	for _, o := range p.own("Pod") {
		if o.GetAnnotations()[contract.BesideAnnotation] == a.UID && nodeOf(o) == a.Node {
			if user, has := reporterUser(&informers.As[corev1.Pod](o).Spec); has {
				return user, true
			}
		}
	}
	return contract.User{}, false
}

// agentUser is the user of agents: that of the API server's pod that was seen last, of those whose user is
// known. Of several that were seen at the same time, as by a process that starts, one counts whose user the
// agents have already. Without such a pod they keep theirs, or are root.
func (p *planner) agentUser() contract.User {
	user, made := contract.Root, false
	for _, o := range p.own("DaemonSet") {
		if was, has := reporterUser(&informers.As[appsv1.DaemonSet](o).Spec.Template.Spec); has {
			user, made = was, true
		}
	}
	pods := slices.DeleteFunc(slices.Clone(p.pods), func(a apiServerPod) bool {
		return !a.userKnown && (made || p.starting(a)) || a.pod.DeletionTimestamp != nil
	})
	if len(pods) == 0 {
		return user
	}
	last := slices.MinFunc(pods, func(a, b apiServerPod) int {
		first := func(a apiServerPod) bool { return a.User.String() == user.String() }
		return cmp.Or(cmp.Compare(p.Seen[a.pod.UID], p.Seen[b.pod.UID]), trueFirst(first(a), first(b)))
	})
	for _, a := range pods {
		if a.User.String() != last.User.String() {
			p.wait("pod %s/%s runs as %s, and the agents as %s, as pod %s, which was seen last", a.pod.Namespace, a.pod.Name,
				a.User, last.User, last.pod.Name)
		}
	}
	return last.User
}

// reporterUser is the API server's user that the reporter in a pod was made with.
func reporterUser(spec *corev1.PodSpec) (contract.User, bool) {
	for _, c := range spec.Containers {
		for _, v := range c.Env {
			if v.Name == contract.APIServerUserVariable {
				user, has := contract.ParseUser(v.Value)
				user.OwnSELinuxType = c.SecurityContext != nil && c.SecurityContext.SELinuxOptions != nil
				return user, has
			}
		}
	}
	return contract.User{}, false
}
