// Package parity makes the development plugin unhealthy in every way it knows, with a real
// kube-apiserver as its client, and sets what that is affected by beside the verdict of a running
// reporter: `make parity`. They must agree, but for the differences that a row allows.
package parity
