package reporters

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
)

// socketName matches a plugin's socket in a report.
var socketName = regexp.MustCompile(`(\\"socket\\":\\")[^"\\]*/([^"\\/]*\\")`)

// AsInAPod changes a reporter's request: the sockets' folder becomes the one in pods, instead of a folder of this host.
// The operator ignores reports about other sockets.
func AsInAPod(r *http.Request) *http.Request {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	body = socketName.ReplaceAll(body, []byte("${1}/var/run/kmsplugin/${2}"))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return r
}
