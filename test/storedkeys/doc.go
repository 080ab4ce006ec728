// Package storedkeys tests `kubectl kms-health stored-keys` as a process: with the data of a real kube-apiserver
// whose key is rotated, and with an etcd that has kubeadm's certificates. With -measure it measures memory and time
// of reading 100,000 Secrets, and compares the time with etcdctl.
package storedkeys
