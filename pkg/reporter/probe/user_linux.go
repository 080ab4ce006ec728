package probe

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kms-health/kms-health/pkg/contract"
)

// denied reports whether connect(2) failed because this process lacks permission.
func denied(failed error) bool {
	return errors.Is(failed, syscall.EACCES) || errors.Is(failed, syscall.EPERM)
}

// notAsAPIServer is why a denied connection shows nothing about the plugin; empty: the API server is denied it, too.
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

// processUser returns the user, groups and capability of this process.
func processUser() contract.User {
	u := contract.User{UID: int64(os.Geteuid()), GID: int64(os.Getegid())}
	groups, _ := os.Getgroups()
	for _, g := range groups {
		u.Groups = append(u.Groups, int64(g))
	}
	var sets [2]unix.CapUserData // of 32 capabilities each
	// It fails only if the kernel does not have this version.
	_ = unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0])
	u.DACOverride = sets[0].Effective&(1<<unix.CAP_DAC_OVERRIDE) != 0
	return u
}
