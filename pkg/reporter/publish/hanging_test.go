package publish

import (
	"sync"
	"testing"
	"time"
)

// A system call on a file system that hangs does not return. Here a function that the
// publisher calls blocks instead.
func TestStatusShowsAWriteThatHasNoResult(t *testing.T) {
	const timeout = 200 * time.Millisecond
	release := make(chan struct{})
	p := runAs(t, credentialFiles(t, newServer(t)), func(c *Config) {
		c.Timeout, c.Since = timeout, func() time.Time { <-release; return noon }
	})
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free)
	began := time.Now()
	p.offer("1")
	text := p.awaitError(t)
	if after := time.Since(began); after < timeout+time.Second {
		t.Errorf("shown after %s", after)
	}
	if text != "a write has had no result for 1s" {
		t.Error(text)
	}
	free()
	p.waitFor(t, Success, 1)
	if text := p.LastError(); text != "" {
		t.Error(text)
	}
}
