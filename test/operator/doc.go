// Package operator tests kms-health-operator as a process, on a real
// kube-apiserver with its controllers, under the role that it ships with. What
// the kubelets would do is simulated by package nodes.
package operator
