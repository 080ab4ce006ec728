// Package tlsprofile turns OpenShift's TLS security profile into the reporter
// file's settings.
//
// It never widens a profile silently: a name that cannot be obeyed is returned
// with the reason, and where nothing that can be obeyed is left, which Go would
// take for its own default, there is an error.
package tlsprofile
