package show

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/stored"
)

// Stored is an inventory for people.
func Stored(i *stored.Inventory) string {
	var revisions []string
	for _, revision := range i.Revisions {
		revisions = append(revisions, strconv.FormatInt(revision, 10))
	}
	text := i.Summary + " (etcd's revision " + strings.Join(revisions, ", ") + ")."
	if len(revisions) > 1 {
		text += " It was compacted meanwhile: objects may have changed in between."
	}
	text = line("", text)
	if i.Next != "" {
		text += line("  Next: ", i.Next)
	}
	for _, u := range i.Unreadable {
		text += line("  Not readable: ", u.Key+": "+u.Error)
	}
	if more := i.UnreadableObjects - len(i.Unreadable); more > 0 {
		text += fmt.Sprintf("  and %d more\n", more)
	}
	all := [][]string{{"RESOURCE", "PROVIDER", "KEK ID", "OBJECTS"}}
	for _, row := range i.Rows {
		all = append(all, []string{orDash(row.Resource), orDash(row.Provider), orDash(row.KEKID), strconv.Itoa(row.Objects)})
	}
	if len(all) == 1 {
		return text
	}
	return text + "\n" + columns(all)
}
