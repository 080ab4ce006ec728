//go:build integration

package operator

import (
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"testing"
)

func dumpAudit(t *testing.T) {
	events, _ := cluster.AuditEvents(func(e *auditv1.Event) bool {
		return e.ObjectRef != nil && e.ObjectRef.Resource == "secrets" && e.ObjectRef.Namespace == "openshift-apiserver" && e.Verb != "watch" && e.Verb != "list"
	})
	for _, e := range events {
		t.Logf("%s %s %s %s %v %s", e.RequestReceivedTimestamp.Format("05.000"), e.User.Username, e.Verb, e.ObjectRef.Name, e.ResponseStatus.Code, e.UserAgent)
	}
}
