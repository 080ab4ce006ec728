// Package tlsprofile converts OpenShift's TLS security profile to the settings of the
// reporter's file.
//
// It never widens a profile silently: a name that cannot be applied is returned with the
// reason. Where nothing that can be applied is left, which Go would take as its own
// default, there is an error.
package tlsprofile
