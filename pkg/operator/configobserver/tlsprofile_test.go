package configobserver

import (
	"sync"
	"testing"
)

// Each worker asks for the settings, and keeps those that are valid for all (the race detector).
func TestTLSSettingsAreReadByAllWorkersAtOnce(t *testing.T) {
	p := NewTLSProfile(nil, new(false))
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for range 2000 {
				if s, problem, known := p.Current(); len(s.CipherSuites) == 0 || problem != "" || !known {
					t.Errorf("%v, %q, %t", s, problem, known)
				}
			}
		})
	}
	workers.Wait()
}
