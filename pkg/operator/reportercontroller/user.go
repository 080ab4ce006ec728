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
)

// startsWithin is how long to wait for the container of a pod that was just seen. The node reports its user only
// then, and a reporter's user cannot change without a new pod.
const startsWithin = time.Minute

// observeAges adds how long each pod and API server's container has been seen. If the user of an API server's pod is
// not known, it syncs again once startsWithin is over.
func (c *Controller) observeAges(s *Snapshot, e *serverState) {
	now, before := time.Now(), e.seen
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
}

// seenLive returns how long the live set has had this writer, as of the last observation, to compare with the ages of
// containers. The first set is as old as the process's first observation, however late it is read.
func (e *serverState) seenLive(writer string) time.Duration {
	if e.writer != nil && writer != *e.writer {
		e.liveSeen = e.looked
	}
	e.writer = &writer
	return e.looked.Sub(e.liveSeen)
}

// starting reports whether the user of a pod is not known yet, but may be known soon.
func (p *planner) starting(a apiServerPod) bool {
	return !a.userKnown && p.Seen[a.pod.UID] < startsWithin
}

// companionUser returns the user of the companion that a pod already has.
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

// agentUser returns the user of agents: that of the API server's pod that was seen last. A pod counts if its user is
// known, or, before there are agents, if startsWithin is over. Of pods that were seen at the same time, as at the
// process's start, one counts that has the agents' current user. Without such a pod agents keep their user, or are
// root.
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
			p.wait("pod %s/%s runs as %s, and the agents as %s, the user of pod %s, which was seen last", a.pod.Namespace,
				a.pod.Name, a.User, last.User, last.pod.Name)
		}
	}
	return last.User
}

// reporterUser returns the API server's user that the reporter in a pod was created for.
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
