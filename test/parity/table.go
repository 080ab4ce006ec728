package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"
)

// widest is how much of an opinion a column shows, in characters.
const widest = 48

// printTable prints the comparison and what may differ, and returns the rows
// that fail, as errors that name the fault.
func printTable(w io.Writer, list []*subject, found []verdicts) []error {
	var failed []error
	table := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(table, "FAULT\t| KUBE-APISERVER\t| OURS, STATUS ONLY\t| OURS, WITH ROUNDTRIP\t| AGREEMENT")
	for i, p := range list {
		v := found[i]
		agreement, err := compare(p.fault, v)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", p.fault.name, err))
			agreement = "NO"
		}
		roundTrip := "as without"
		if v.roundTrip != v.status {
			roundTrip = short(v.roundTrip)
		}
		fmt.Fprintf(table, "%s\t| %s\t| %s\t| %s\t| %s\n", p.fault.name, short(v.kube), short(v.status), roundTrip, agreement)
	}
	_ = table.Flush() // an error of the terminal cannot be reported
	fmt.Fprintln(w, "\nAllowed differences, by their number in the last column; any other fails the run:")
	for _, d := range differences {
		fmt.Fprintf(w, "%d. %s\n   %s\n", d.number, d.what, d.why)
	}
	return failed
}

// phrases are omitted from an opinion, so that the reason fits.
var phrases = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`kmsv2 Provider \S+ is not healthy, error: `), ""},
	{regexp.MustCompile(`failed to perform status section .* for KMS Provider \S+, error: `), ""},
	{regexp.MustCompile(`rpc error: code = (\w+) desc = `), "$1: "},
	{regexp.MustCompile(`failed to rotate DEK .*errGen=<nil>.*`), "Encrypt names another key than Status"},
	{regexp.MustCompile(`failed to rotate DEK .*errGen=(.*), statusKeyIDHash=.*`), "$1"},
	{regexp.MustCompile(`got invalid KMSv2 KeyID hash "[^"]*": `), ""},
	{regexp.MustCompile(`KMSv2 API version should not change after .* version (\S+), got`), "version was $1, is"},
	{regexp.MustCompile(`DeadlineExceeded: latest balancer error.*connect: ([a-z ]+).*`), "cannot connect: $1"},
	{regexp.MustCompile(`^Status: `), ""},
	{regexp.MustCompile(`grpc: received message larger than max`), "answer too large"},
	{regexp.MustCompile(`connect to /\S*/kms-\d+\.sock`), "connect"},
	{regexp.MustCompile(`the answer to Encrypt names key_id .*`), "Encrypt names another key than Status"},
	{regexp.MustCompile(`the answer to Decrypt is (\d+) bytes that differ.*`), "Decrypt answers $1 other bytes"},
	{regexp.MustCompile(`: nothing listens on it.*`), ""},
	{regexp.MustCompile(`what was encrypted at \S+ under the same key_id can no longer be decrypted`), "older data"},
	{regexp.MustCompile(`\s+`), " "},
}

// short is an opinion in one short line.
func short(o opinion) string {
	if o.ok {
		return o.String()
	}
	why := strings.TrimSuffix(o.why, "]")
	for _, p := range phrases {
		why = p.pattern.ReplaceAllString(why, p.by)
	}
	o.why = why
	text := []rune(o.String())
	if len(text) > widest {
		return string(text[:widest-1]) + "…"
	}
	return string(text)
}
