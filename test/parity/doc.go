// Package parity compares a running reporter with a real kube-apiserver: `make parity`. It makes the
// development plugin unhealthy in all ways that it supports. The reporter's verdict must agree with the
// effects on kube-apiserver, except for the differences that a row allows.
package parity
