package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/test/controlplane"
)

// watchers follow the object that is written, and count what they are told.
type watchers struct {
	end    context.CancelFunc
	ended  sync.WaitGroup
	events atomic.Int64
	bytes  atomic.Int64
	failed atomic.Pointer[error]
}

// startWatchers has some clients follow the object, each by a connection of its
// own, in JSON, which is what custom resources are told in.
func startWatchers(ctx context.Context, config *rest.Config, n int) (*watchers, error) {
	ctx, end := context.WithCancel(ctx)
	w := &watchers{end: end}
	for range n {
		transport, err := rest.TLSConfigFor(config)
		if err != nil {
			return nil, errors.Join(err, w.stop())
		}
		query := url.Values{"watch": {"true"}, "fieldSelector": {"metadata.name=" + controlplane.ClusterObject}}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet,
			config.Host+"/apis/"+controlplane.OperatorGroup+"/v1/"+resource+"?"+query.Encode(), nil)
		if err != nil {
			return nil, errors.Join(err, w.stop())
		}
		request.Header.Set("Authorization", "Bearer "+config.BearerToken)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: transport, ForceAttemptHTTP2: true}}
		answer, err := client.Do(request)
		if err != nil {
			return nil, errors.Join(err, w.stop())
		}
		w.ended.Go(func() {
			defer client.CloseIdleConnections()
			defer answer.Body.Close()
			buffer := make([]byte, 64<<10)
			for {
				n, err := answer.Body.Read(buffer)
				w.bytes.Add(int64(n))
				w.events.Add(int64(bytes.Count(buffer[:n], []byte("\n")))) // each is a line
				if err != nil {
					if ctx.Err() == nil {
						err = fmt.Errorf("a watch ended by itself: %w", err)
						w.failed.Store(&err)
					}
					return
				}
			}
		})
	}
	return w, nil
}

func (w *watchers) stop() error {
	w.end()
	w.ended.Wait()
	if err := w.failed.Load(); err != nil {
		return *err
	}
	return nil
}
