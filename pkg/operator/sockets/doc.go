// Package sockets finds where on its node the plugins' sockets of a running API
// server pod are, so that a pod of its own can mount exactly those folders.
//
// It is pure, and trusts no annotation with a path: what it returns is a host
// path that the pod's spec names, or a folder that the kubelet made for one of
// the pod's own volumes.
package sockets
