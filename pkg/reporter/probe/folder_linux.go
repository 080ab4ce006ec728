package probe

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// MissingGrace is for how long a socket that is not there, in a volume of a pod, is no
// error: a little longer than OpenShift gives an API server to end, 135 seconds.
const MissingGrace = 150 * time.Second

// absence is what the file system says of a socket that could not be connected to. The
// zero value says nothing.
type absence struct {
	why string
	// gone is true when there is nothing to observe, for good or until a time.
	gone  bool
	until time.Time
	// lacking is why it could not be found out, where the reporter itself lacks something.
	lacking error
}

// absence looks for the socket. In a volume of a pod (an emptyDir), it comes and goes
// with its plugin, and its folder with the pod. A plugin that has not begun to listen
// has no socket yet, and one that ends in order removes its own, as all of them do when
// their pod is about to go: the API server of that pod may still serve for minutes. One
// that crashes leaves it behind.
func (p *Plugin) absence(now time.Time) absence {
	if strings.HasPrefix(p.address, "@") {
		return absence{}
	}
	folder := p.address[:strings.LastIndexByte(p.address, '/')+1] // as the kernel walks it
	pods, err := p.inPodVolume(folder)
	deleted := folderDeleted(folder)
	switch {
	case own(err):
		return absence{lacking: err}
	case deleted && pods:
		return absence{gone: true, why: "its folder was deleted, with the pod that it belonged to"}
	case deleted:
		return absence{why: "its folder was deleted on the host, and this mount still shows the deleted one: delete the reporter's pod, so that a new one mounts the new folder"}
	}
	if !pods || SocketExists(p.address) {
		p.missing = time.Time{}
		return absence{}
	}
	if p.missing.IsZero() {
		p.missing = now
	}
	until := p.missing.Add(MissingGrace)
	if !now.Before(until) {
		return absence{}
	}
	return absence{gone: true, until: until, why: "it is not there: its plugin is about to start, or its pod to end"}
}

// SocketExists says whether a socket can be connected to, as far as its name goes.
func SocketExists(address string) bool {
	if strings.HasPrefix(address, "@") {
		return true
	}
	_, err := os.Lstat(address)
	return !errors.Is(err, os.ErrNotExist)
}

// folderDeleted tells whether a folder was deleted under us. Whoever has such a folder
// mounted sees an empty one whose link count is 0, which no living folder has.
func folderDeleted(folder string) bool {
	var st syscall.Stat_t
	return syscall.Stat(folder, &st) == nil && st.Nlink == 0
}

// inPodVolume tells whether a folder lies in what a kubelet made as an emptyDir volume.
func (p *Plugin) inPodVolume(folder string) (bool, error) {
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		folder = real
	}
	mounts, err := p.mounts()
	return err == nil && inEmptyDir(mounts, folder), err
}

// inEmptyDir tells, by a mountinfo (proc(5)), whether a folder lies in what a kubelet
// made as an emptyDir volume: the mount's root in its file system is below a folder
// that is named so. One in memory is a file system of its own, and cannot be told.
func inEmptyDir(mountinfo, folder string) bool {
	var longest, root string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		const rootField, pointField = 3, 4
		if len(fields) <= pointField {
			continue
		}
		point := fields[pointField]
		if (folder == point || strings.HasPrefix(folder, strings.TrimSuffix(point, "/")+"/")) && len(point) >= len(longest) {
			longest, root = point, fields[rootField]
		}
	}
	return strings.Contains(root, "/kubernetes.io~empty-dir/")
}
