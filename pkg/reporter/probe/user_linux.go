package probe

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/kms-health/kms-health/pkg/contract"
)

// denied reports whether the kernel's error of connect(2) is about who connects.
func denied(failed error) bool {
	return errors.Is(failed, syscall.EACCES) || errors.Is(failed, syscall.EPERM)
}

// notAsAPIServer is why a connection that was denied to this process says nothing on the plugin: the API
// server runs as another user, or it is not known as whom. Empty: it is denied to the API server, too.
func notAsAPIServer() string {
	user, apiServer := processUser().String(), os.Getenv(contract.APIServerUserVariable)
	switch apiServer {
	case user:
		return ""
	case "":
		return fmt.Sprintf("this process runs as %s, and the API server's user is not known: %s is not set",
			user, contract.APIServerUserVariable)
	default:
		return fmt.Sprintf("this process runs as %s, and the API server as %s", user, apiServer)
	}
}

// processUser is whom this process runs as.
func processUser() contract.User {
	const capDACOverride = 1 // linux/capability.h
	u := contract.User{UID: int64(os.Geteuid()), GID: int64(os.Getegid())}
	groups, _ := os.Getgroups()
	for _, g := range groups {
		u.Groups = append(u.Groups, int64(g))
	}
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if hex, found := strings.CutPrefix(line, "CapEff:"); found {
			effective, _ := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			u.DACOverride = effective&(1<<capDACOverride) != 0
		}
	}
	return u
}
