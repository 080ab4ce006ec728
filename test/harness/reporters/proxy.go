package reporters

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
)

// socketName is a plugin's socket in a report.
var socketName = regexp.MustCompile(`(\\"socket\\":\\")[^"\\]*/([^"\\/]*\\")`)

// AsInAPod is a request of a reporter in which sockets are in the folder that pods have, and not in one of this host: a
// report counts for its socket.
func AsInAPod(r *http.Request) *http.Request {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	body = socketName.ReplaceAll(body, []byte("${1}/var/run/kmsplugin/${2}"))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return r
}
