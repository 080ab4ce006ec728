package show

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/stored"
	"github.com/kms-health/kms-health/cmd/kubectl-kms_health/internal/view"
	"github.com/kms-health/kms-health/pkg/contract"
)

// Lines is external text of several lines, without control characters.
func Lines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = contract.Clean(lines[i])
	}
	return strings.Join(lines, "\n")
}

const maxKey, maxKEK = 20, 16 // bounds of identifiers in a table, in runes, unless it is wide

// table has a row for each plugin.
func table(s *view.Status, wide bool) string {
	all := [][]string{{"API SERVER", "NODE", "KEY", "STATE", "KEK ID", "AGE", "SINCE", "TRIP", "LOST"}}
	for _, a := range s.APIServers {
		for _, p := range a.Plugins {
			all = append(all, cells(&a, &p, wide))
		}
	}
	if len(all) == 1 {
		return ""
	}
	return columns(all)
}

// columns aligns cells, which are clean.
func columns(all [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range all {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // a Builder has no errors
	return b.String()
}

func cells(a *view.APIServer, p *view.Plugin, wide bool) []string {
	key, kek := orDash(p.KeyID), orDash(p.KEKID)
	if !wide {
		key, kek = middle(key, maxKey), middle(kek, maxKEK)
	}
	if p.Write {
		key += " (write)"
	}
	return []string{orDash(a.Name), orDash(p.Node), key, contract.Clean(string(p.State)), kek,
		since(p.LastChecked, a.AsOf), since(p.Since, a.AsOf), since(p.RoundTrip, a.AsOf), orDash(strings.Join(p.Lost, ", "))}
}

// orDash is the text of a cell, a dash if it is empty.
func orDash(s string) string {
	return cmp.Or(strings.TrimSpace(contract.Clean(s)), "-")
}

// middle shortens a text to a number of runes, in its middle: many ids and names have the same beginning, such as ARNs.
func middle(s string, runes int) string {
	r := []rune(s)
	if len(r) <= runes {
		return s
	}
	return string(r[:(runes-1)/2]) + "…" + string(r[len(r)-runes/2:])
}

// since is how long ago a time is, a dash if it is not known, and <invalid> if it is to come, as by kubectl get.
func since(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

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

// As returns v as JSON or YAML, safe to print to a terminal; for any other format it returns the text.
func As(format string, v any, text string) []byte {
	if format != "json" && format != "yaml" {
		return []byte(text)
	}
	var b bytes.Buffer
	_ = json.Indent(&b, contract.Body(v), "", "  ") // a Body is valid JSON
	asJSON := append(b.Bytes(), '\n')
	if format == "json" {
		return asJSON
	}
	// The encoder leaves some characters that cannot be printed, such as bidirectional controls: what has any is printed
	// as JSON, which is YAML, too.
	block, _ := yaml.JSONToYAML(asJSON) // nil for what it cannot read
	if block == nil || bytes.ContainsFunc(block, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }) {
		return asJSON
	}
	return block
}
