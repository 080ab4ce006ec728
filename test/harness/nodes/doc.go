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
// With Options.Processes the containers of one name (kms-health) are run, as
// processes of one binary: with the volumes that they mount, kept up to date as a
// kubelet keeps them, with their environment and arguments, restarted when they
// exit, and ended when their pod is deleted.
//
// A process sees the host's files, for there is no mount namespace without root.
// So wherever a mountPath of the container stands, in its arguments and literal
// environment and in the text files of its configMap and downwardAPI volumes (in
// projected ones too, never in Secrets), it is replaced by the folder that is
// mounted there, longest path first. A path that the program knows by itself,
// such as the default of a flag, is not. Read-only mounts, users, capabilities and
// resource limits are not kept to; and when a folder goes that another pod
// mounts, that pod sees no folder, where a real mount would show an empty one.
package nodes
