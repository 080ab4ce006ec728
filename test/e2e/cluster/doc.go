// Package cluster runs a real Kubernetes cluster on this host, as root: for the
// end-to-end tests, and for trying something by hand.
//
// Real are etcd, kube-controller-manager, kube-scheduler, kube-proxy, kubelet,
// containerd, runc, CNI, and kube-apiserver, which is a static pod on every node.
//
// A node is a set of Linux namespaces with a root of its own: it has its own
// /etc, /var, /run, loopback and process ids, so that every path and port is that
// of a production node (/var/lib/kubelet, localhost:6443), and a second node on the
// same host is no special case. Nodes are joined by a bridge in a namespace of its
// own. When a node's first process ends, the kernel ends all others and takes its
// mounts and network away, so nothing is left on the host but one folder and empty
// cgroups of containers, which Stop removes. Every node ends with the process that started it.
//
// StartKubeadm has kubeadm make a node's control plane, in place of what is here for OpenShift's.
//
// Images are built here and imported. No node has a route to anything but the other nodes.
//
// The package simulates OpenShift where OpenShift's own programs are not available:
// Installer writes revisions of the static pod, as its installer and cert-syncer do.
package cluster
