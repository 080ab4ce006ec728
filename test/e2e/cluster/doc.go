// Package cluster runs a real Kubernetes cluster on this host, as root: for the
// end-to-end tests, and for trying something by hand.
//
// etcd, kube-controller-manager, kube-scheduler, kube-proxy, kubelet, containerd, runc and CNI are the real programs,
// and so is kube-apiserver, which is a static pod on every node.
//
// A node is a set of Linux namespaces with its own root file system, loopback and process ids. So every path and port
// is the same as on a production node (/var/lib/kubelet, localhost:6443), and a host can have several nodes. A bridge
// in another network namespace connects the nodes. When a node's first process ends, the kernel ends all others, and
// removes mounts and network. Only a folder and empty cgroups of containers are left on the host, and Stop removes
// them. Every node ends with the process that started it.
//
// StartKubeadm uses kubeadm for the control plane, instead of the simulation of OpenShift.
//
// Images are built here and imported. No node can reach anything but the other nodes.
//
// OpenShift's programs are not available, so the package simulates them: Node.Install and Node.SyncFolder write files
// like OpenShift's installer and cert-syncer.
package cluster
