// Package nodes simulates the nodes of a control plane that has none
// (package controlplane): it simulates the kubelets and the scheduler on the
// API, so that DaemonSets become ready, Deployments roll and static pods have
// their mirrors, in milliseconds and without root.
//
// It simulates what the API shows of a node:
//   - Nodes that are Ready, labelled as a control plane's;
//   - a pod without a node is bound to one that it fits by nodeSelector, required
//     node affinity and taints (not by resources, nor by affinity to pods);
//   - a bound pod becomes Running and Ready, or what PodBehaviour reports of it; one
//     with restartPolicy Never or OnFailure ends Succeeded;
//   - a deleted pod is removed at once, whatever its grace period, unless a process
//     of it must end first;
//   - static pods have mirror pods, under the rules of NodeRestriction: all
//     writes of a node are made as system:node:<name>, by impersonation;
//   - Options.Root: every pod's emptyDirs are folders where a kubelet has them.
//
// What it does not do: no image is pulled, no container isolated, no probe run, no
// Event sent, no Lease renewed, no pod evicted, and nothing has an IP address
// that answers. A mirror pod is made through the API server, so unlike a real one
// a static pod begins with the API server up. What depends on a real kubelet and
// a real container runtime is for the end-to-end tests.
//
// # Processes
//
// With Options.Processes the reporters' containers (kms-health) are run, as processes of
// one binary: with the volumes that they mount, of the kinds that their pods have, kept up
// to date, with their environment and arguments, started again when they exit, and ended
// when their pod is deleted. The status of the pod is simulated as that of others: a
// reporter that does not start is shown as one that runs.
//
// A process sees the host's files, for there is no mount namespace without root.
// So wherever a mountPath of the container stands, in its arguments and in its
// configMap and downwardAPI volumes, it is replaced by the folder that is mounted there.
// Nothing is read-only, and there are no users, capabilities and resource limits.
package nodes
