package probe

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// folderDeleted tells whether the folder of a socket was deleted under us. When
// a pod goes, the kubelet deletes its volumes; whoever has such a folder mounted
// then sees an empty one whose link count is 0, which no living folder has.
func folderDeleted(address string) bool {
	if strings.HasPrefix(address, "@") {
		return false
	}
	var st syscall.Stat_t
	return syscall.Stat(path.Dir(address), &st) == nil && st.Nlink == 0
}

// podSocketMissing tells whether a socket is not there, in a volume of a pod. A plugin
// that has not begun to listen has none yet, and one that ends in order removes its
// own, as all of them do when their pod is about to go: the API server of that pod may
// still serve for minutes. One that crashes leaves it behind.
func podSocketMissing(address string) bool {
	if strings.HasPrefix(address, "@") {
		return false
	}
	if _, err := os.Lstat(address); !errors.Is(err, os.ErrNotExist) {
		return false
	}
	folder, err := filepath.EvalSymlinks(path.Dir(address))
	if err != nil {
		return false
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && inEmptyDir(string(mounts), folder)
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
