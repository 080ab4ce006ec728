package reporter

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"k8s.io/klog/v2"

	"github.com/kms-health/kms-health/pkg/filewatch"
)

const (
	maxState     = 8 << 20         // bytes: 16 plugins with nine samples each of at most 6 KiB, in base64
	stateTimeout = 2 * time.Second // of the wait for the file at the start: its file system may hang
	// statePeriod is how old the file may become while nothing changes. Its age shows for how long no reporter has run.
	statePeriod = 10 * time.Minute
	// saveDelay delays each save, so that probes that begin at the same time come first. While a file is written,
	// a process with GOMAXPROCS=1 does nothing else until Go's runtime notices, for up to 10 ms.
	saveDelay = 100 * time.Millisecond
)

// state is the content of the file, which outlives the process. Newer samples are in the plugins.
type state struct {
	Saved   time.Time          `json:"saved"`
	Plugins map[string]samples `json:"plugins"` // by id
}

// loadState reads the file. If it cannot, the state is empty: samples only help to find more problems.
func loadState(path string, now time.Time) *state {
	s, content := &state{}, filewatch.Read(path, maxState)
	err := content.Err
	if err == nil {
		err = json.Unmarshal(content.Data, s)
	}
	for id, kept := range s.Plugins {
		if !kept.loaded(now, s.Saved) {
			err = cmp.Or(err, fmt.Errorf("the samples of the plugin %q are not valid", id))
		}
		s.Plugins[id] = kept
	}
	if err == nil {
		return s
	}
	if !errors.Is(err, fs.ErrNotExist) {
		klog.ErrorS(err, "Kept samples cannot be read; beginning without them", "file", path)
	}
	return &state{}
}

// save has the samples of all plugins written: at once if they changed, else if the file is older than statePeriod.
func (r *Reporter) save(now time.Time, changed bool) {
	if r.samples == nil || !changed && now.Sub(r.state.Saved) < statePeriod {
		return
	}
	r.state = &state{Saved: now, Plugins: map[string]samples{}}
	for _, p := range r.plugins {
		r.state.Plugins[p.id()] = p.trips.samples
	}
	data, err := json.Marshal(r.state)
	if err != nil {
		klog.ErrorS(err, "Failed to encode the kept samples")
		return
	}
	r.samples.put(data)
}

func (r *Reporter) writeSamples(data []byte) {
	time.Sleep(saveDelay)
	r.samplesProblem.Note(writeState(r.options.StateFile, data),
		"Failed to save the kept samples; a restart begins without them", "file", r.options.StateFile)
}

// writeState replaces the file by a rename, so that it is never seen in part.
func writeState(path string, data []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	// Without Sync, after a power failure the rename alone may be on the disk.
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
