package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/kms-health/kms-health/pkg/contract"
)

// unreachable is the result of a connection that failed with the kernel's error, by what the file system shows. In a
// volume of a pod (an emptyDir) the socket's folder is deleted with the pod. A plugin that exits normally removes its
// socket; one that crashes does not.
func (p *Plugin) unreachable(failed error) Result {
	folder := p.address[:strings.LastIndexByte(p.address, '/')+1] // as the kernel resolves it
	_, noFolder := os.Stat(folder)
	info, noSocket := os.Stat(p.address)
	reason, why := contract.ConnectFailed, explained(failed)
	switch {
	case own(failed):
		return Result{NotProbed: failed.Error()}
	case strings.HasPrefix(p.address, "@"):
		why = strings.TrimSuffix(why, leftFile)
	case isDeleted(folder) || isDeleted(p.address):
		switch pods, err := p.inPodVolume(folder); {
		case err != nil:
			return Result{NotProbed: err.Error()}
		case pods:
			return Result{Gone: true, Detail: "its folder was deleted, with the pod that it belonged to"}
		}
		why = "what is mounted was deleted on the host, and mounts of pods still show the deleted one: once the plugin " +
			"runs, restart the API server if it is not ready, and then delete the reporter's pod"
	case errors.Is(noFolder, os.ErrNotExist):
		reason = contract.SocketMissing
		why = "its folder does not exist: check the endpoint, and the volume that has the socket"
	case errors.Is(noSocket, os.ErrNotExist):
		reason, why = contract.SocketMissing, noSocketFile
		if _, err := os.Readlink(p.address); err == nil {
			why = "it is a link to a file that does not exist"
		}
	case noSocket == nil && info.Mode().Type() != os.ModeSocket:
		why = "it is not a socket, its mode is " + info.Mode().String()
	}
	if denied(failed) && notAsAPIServer() != "" {
		return Result{NotProbed: fmt.Sprintf("cannot be probed as the API server: connect: %v: %s", failed, notAsAPIServer())}
	}
	detail := strings.TrimSuffix(fmt.Sprintf("cannot connect to %s: %v: %s", p.address, failed, why), ": ")
	return Result{Status: contract.Error, Reason: reason, Detail: contract.CleanDetail(detail)}
}

// noSocketFile explains a folder without the socket. A server that ends removes the socket by its path, even if the
// socket is already that of a later process.
const noSocketFile = "the plugin does not run, or a former process of it removed the socket when it ended"

const leftFile = " (a plugin that was killed leaves its socket's file behind: remove it if the plugin's log has " +
	"\"address already in use\")"

func explained(failed error) string {
	switch {
	case errors.Is(failed, syscall.ECONNREFUSED):
		return "nothing listens on it" + leftFile
	case errors.Is(failed, syscall.EAGAIN):
		return "its queue of connections is full: the plugin does not accept any"
	case denied(failed):
		return fmt.Sprintf("this process runs as %s, as the API server does", processUser())
	}
	return ""
}

// isDeleted reports whether a folder, or a socket, was deleted while it is mounted here: its link count is then 0.
func isDeleted(path string) bool {
	var st syscall.Stat_t
	return syscall.Stat(path, &st) == nil && st.Nlink == 0
}

// inPodVolume reports whether a deleted folder is an emptyDir volume made by a kubelet.
func (p *Plugin) inPodVolume(folder string) (bool, error) {
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		folder = real
	}
	mounts, err := p.mounts()
	return err == nil && inEmptyDir(mounts, folder), err
}

// inEmptyDir reports, by a mountinfo (proc(5)), whether a deleted folder is an emptyDir volume made
// by a kubelet: the root of its mount is marked as deleted, and is below a folder with the kubelet's
// name for such volumes. An emptyDir in memory is a separate file system, and not recognized.
func inEmptyDir(mountinfo, folder string) bool {
	for line := range strings.Lines(mountinfo) {
		const root, point = 3, 4
		if f := strings.Fields(line); len(f) > point && strings.HasPrefix(folder+"/", f[point]+"/") &&
			strings.Contains(f[root], "/kubernetes.io~empty-dir/") && strings.HasSuffix(f[root], "//deleted") {
			return true
		}
	}
	return false
}
