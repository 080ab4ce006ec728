package configobserver

import (
	"sync"
	"testing"
)

// Current caches the settings for all workers. The race detector checks the concurrent calls.
func TestTLSSettingsAreReadByAllWorkersAtOnce(t *testing.T) {
	p := NewTLSProfile(nil, false)
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
