package probe

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// absence is what the file system says of a socket that could not be connected to. The
// zero value says nothing.
type absence struct {
	why string
	// gone is true when the socket's folder was deleted with the pod that it belonged
	// to: there is nothing to observe.
	gone bool
	// missing is true when the socket is not in its folder.
	missing bool
	// lacking is why it could not be found out, where the reporter itself lacks something.
	lacking error
}

// absence looks for the socket. In a volume of a pod (an emptyDir) its folder goes with
// the pod. The socket itself goes with its plugin: one that ends in order removes it,
// one that crashes leaves it behind.
func (p *Plugin) absence() absence {
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
	return absence{missing: !SocketExists(p.address)}
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
