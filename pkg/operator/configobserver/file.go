// Package configobserver follows the operator's configuration file and the cluster's TLS profile. It keeps the last
// valid one of each, and enqueues keys after a change. It runs on every replica, and does not wait for an API server.
package configobserver

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
	"github.com/kms-health/kms-health/pkg/operator/informers"
)

// File is the operator's configuration file.
type File struct {
	Path    string
	Image   string           // the reporter's, used if the file has none; may be empty
	Valid   prometheus.Gauge // 1 while the current content of the file is active, else 0
	Enqueue []informers.Key  // after each change

	active  atomic.Pointer[v1alpha1.OperatorConfiguration]
	problem atomic.Pointer[string]
}

// Run follows the file until ctx ends.
func (f *File) Run(ctx context.Context) {
	filewatch.New(f.Path, v1alpha1.MaxFileSize).Run(ctx, f.observe)
}

// Current returns the active configuration; nil: none is active yet.
func (f *File) Current() *v1alpha1.OperatorConfiguration { return f.active.Load() }

// Problem returns why the file is rejected; empty: it is active, or was not read yet.
func (f *File) Problem() string { return *cmp.Or(f.problem.Load(), new("")) }

// observe applies the content of the file, or keeps the previous configuration, and reports why the file is rejected,
// once for each reason.
func (f *File) observe(content filewatch.Content) {
	c, err := f.decode(content)
	if err != nil {
		f.Valid.Set(0)
		why := err.Error()
		if was := f.problem.Swap(&why); was != nil && *was == why {
			return
		}
		klog.ErrorS(err, "Rejected the configuration; the last valid one, if any, stays active", "file", f.Path)
	} else {
		f.Valid.Set(1)
		f.problem.Store(nil)
		f.active.Store(c)
		klog.InfoS("Configured", "file", f.Path,
			"managementState", c.ManagementState, "apiServers", len(c.APIServers))
	}
	for _, key := range f.Enqueue {
		key.Queue.Enqueue(key.Name)
	}
}

func (f *File) decode(content filewatch.Content) (c *v1alpha1.OperatorConfiguration, err error) {
	if content.Err != nil {
		return nil, content.Err
	}
	if c, err = v1alpha1.DecodeOperator(content.Data); err == nil {
		err = c.UseImage(f.Image)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	return c, nil
}
