package probe

import (
	"path"
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
