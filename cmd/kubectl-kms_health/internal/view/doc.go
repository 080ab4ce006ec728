// Package view evaluates the reports on operator resources, for display. It uses the
// reports only, so it needs no running operator, and adds the operator's last conditions.
//
// The package is pure: from resources and a time to a Status.
package view
