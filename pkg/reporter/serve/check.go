package serve

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/kms-health/kms-health/pkg/contract"
)

// Check is one line of an answer, in the form of kube-apiserver's health endpoints.
type Check struct {
	Name string
	Why  string // why it failed; empty if it passed
}

// Write answers in kube-apiserver's form: "ok", or a line per check, with ?verbose or if a check failed and
// failCode is not 200. With failCode 200, failed checks do not fail the endpoint. A reason is one line of at most
// contract.MaxDetail bytes, whatever a plugin or a server put into it.
func Write(w http.ResponseWriter, r *http.Request, endpoint string, checks []Check, failCode int) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache, private")
	var lines strings.Builder
	failed := false
	for _, c := range checks {
		if c.Why == "" {
			fmt.Fprintf(&lines, "[+]%s ok\n", c.Name)
			continue
		}
		fmt.Fprintf(&lines, "[-]%s failed: %s\n", c.Name, contract.CleanDetail(c.Why))
		failed = true
	}
	switch { // a write fails only if the client went away
	case failed && failCode != http.StatusOK:
		w.WriteHeader(failCode)
		_, _ = fmt.Fprintf(w, "%s%s check failed\n", lines.String(), endpoint)
	case r.URL.Query().Has("verbose"):
		_, _ = fmt.Fprintf(w, "%s%s check passed\n", lines.String(), endpoint)
	default:
		_, _ = fmt.Fprint(w, "ok")
	}
}
