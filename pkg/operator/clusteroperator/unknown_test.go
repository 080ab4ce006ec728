package clusteroperator

import (
	"testing"

	"github.com/kms-health/kms-health/pkg/operatorcr"
)

func TestTargetWithUnknownStateIsNotDegraded(t *testing.T) {
	s := begin()
	s.at(0, "", Target{Name: "a"})
	got, _ := s.at(inertia+1, "", Target{Name: "a"})
	if c := got[Degraded]; c.Status != operatorcr.False {
		t.Errorf("%+v", c)
	}
}
