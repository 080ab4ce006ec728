package stage

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/kms-health/kms-health/test/apiservers"
)

// Observer sees every write of the operator resources, in etcd: nothing is missed,
// whatever the API servers do meanwhile, and nobody is asked anything.
type Observer struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu     sync.Mutex
	states []State
	err    error
}

// Observe watches until Close.
func (s *Stage) Observe(ctx context.Context) (*Observer, error) {
	ctx, cancel := context.WithCancel(ctx)
	o := &Observer{cancel: cancel, ended: make(chan struct{})}
	body, err := s.Nodes()[0].EtcdWatch(ctx, watchRequest("/registry/operator.openshift.io/"))
	if err != nil {
		cancel()
		return nil, err
	}
	go func() {
		defer close(o.ended)
		defer body.Close()
		in := bufio.NewReaderSize(body, 1<<20)
		for {
			line, err := in.ReadBytes('\n')
			if err == nil {
				err = o.take(line)
			}
			if err != nil {
				o.mu.Lock()
				o.err = err
				o.mu.Unlock()
				return
			}
		}
	}()
	return o, nil
}

func watchRequest(prefix string) string {
	end := []byte(prefix)
	end[len(end)-1]++
	code := base64.StdEncoding.EncodeToString
	return fmt.Sprintf(`{"create_request": {"key": %q, "range_end": %q}}`, code([]byte(prefix)), code(end))
}

func (o *Observer) take(line []byte) error {
	var answer struct {
		Result struct {
			Events []struct {
				KV struct{ Key, Value []byte }
			}
		}
		Error json.RawMessage
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return err
	}
	if len(answer.Error) > 0 {
		return fmt.Errorf("etcd: %s", answer.Error)
	}
	at := time.Now()
	for _, e := range answer.Result.Events {
		for _, server := range apiservers.All {
			if !strings.HasPrefix(string(e.KV.Key), "/registry/operator.openshift.io/"+server.Resource+"/") || len(e.KV.Value) == 0 {
				continue
			}
			state, err := readState(e.KV.Value, server)
			if err != nil {
				return err
			}
			state.At = at
			o.mu.Lock()
			o.states = append(o.states, state)
			o.mu.Unlock()
		}
	}
	return nil
}

// Close ends it, and says what kept it from seeing everything.
func (o *Observer) Close() error {
	o.mu.Lock()
	err := o.err
	o.mu.Unlock()
	o.cancel()
	<-o.ended
	return err
}

// States returns what was seen of one resource since a time.
func (o *Observer) States(server apiservers.Server, since time.Time) []State {
	o.mu.Lock()
	defer o.mu.Unlock()
	var found []State
	for _, s := range o.states {
		if s.Server == server && !s.At.Before(since) {
			found = append(found, s)
		}
	}
	return found
}

// Await waits for a state that a check has nothing against, of those since a time.
func (o *Observer) Await(ctx context.Context, server apiservers.Server, since time.Time, limit time.Duration, what string, check func(State) error) (State, error) {
	var good State
	err := Eventually(ctx, limit, what, func(context.Context) error {
		last := errors.New("nothing was written")
		for _, s := range o.States(server, since) {
			if last = check(s); last == nil {
				good = s
				return nil
			}
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		return errors.Join(last, o.err)
	})
	return good, err
}
