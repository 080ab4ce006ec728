package contract

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// User has the credentials of a process that decide whether it may connect to a socket.
type User struct {
	UID, GID int64
	Groups   []int64 // the supplementary groups, in any order, with GID or without it
	// DACOverride is the capability to ignore the permissions of files.
	DACOverride bool
	// OwnSELinuxType means that its SELinux type is not the default one of containers, which may connect to less. String
	// does not contain it.
	OwnSELinuxType bool
}

// Root is the assumed user of an API server about which nothing is known: a process of the node.
var Root = User{DACOverride: true, OwnSELinuxType: true}

// Supplementary returns the groups without GID, sorted, each once.
func (u User) Supplementary() []int64 {
	groups := slices.DeleteFunc(slices.Clone(u.Groups), func(g int64) bool { return g == u.GID })
	slices.Sort(groups)
	return slices.Compact(groups)
}

// String is the form of APIServerUserVariable, as "65534:65534 groups 65534 1000": the same for equal users.
func (u User) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d:%d groups %[2]d", u.UID, u.GID)
	for _, g := range u.Supplementary() {
		fmt.Fprintf(&b, " %d", g)
	}
	if u.DACOverride {
		b.WriteString(" " + DACOverride)
	}
	return b.String()
}

// DACOverride is the name of the capability in a pod's securityContext.
const DACOverride = "DAC_OVERRIDE"

// ParseUser reads what String returns; false for any other text.
func ParseUser(text string) (User, bool) {
	var u User
	ids, groups, _ := strings.Cut(text, " groups ")
	uid, gid, _ := strings.Cut(ids, ":")
	groups, u.DACOverride = strings.CutSuffix(groups, " "+DACOverride)
	for _, field := range append([]string{uid, gid}, strings.Fields(groups)...) {
		id, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return User{}, false
		}
		u.Groups = append(u.Groups, id)
	}
	u.UID, u.GID, u.Groups = u.Groups[0], u.Groups[1], u.Groups[2:]
	return u, u.String() == text
}
