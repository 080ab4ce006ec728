package rollup

import (
	"regexp"
	"strings"
)

// looks is a command at the end of a line of a message. A plugin's text is in the line, too, and
// may look like one: nothing but the names of a pod and its container is accepted.
var looks = regexp.MustCompile(`; see (?:oc|kubectl) (logs -n ` + name + ` ` + name + `(?: -c ` + name + `)?)$`)

const name = `[a-z0-9][a-z0-9.-]*`

// Look is the command, without its program, that the message of KMSPluginsDegraded has for the
// log of a key's plugin on a node; empty: none. A line of several nodes has that of the first.
// It is here, beside what renders the message, so that nothing else depends on the text.
func Look(message, key, node string) string {
	about := "key " + keyName(key) + " on node"
	for line := range strings.SplitSeq(message, "\n") {
		if !strings.HasPrefix(line, about+" "+node+": ") && !strings.HasPrefix(line, about+"s "+node+", ") {
			continue
		}
		if found := looks.FindStringSubmatch(line); found != nil {
			return found[1]
		}
	}
	return ""
}
