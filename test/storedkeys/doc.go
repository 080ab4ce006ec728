// Package storedkeys tests `kubectl kms-health stored-keys` as a process: with the data of a real kube-apiserver
// whose key is rotated, and with an etcd that has kubeadm's certificates. With -measure it reads 100,000
// Secrets, and compares memory and time with etcdctl.
package storedkeys
