package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/test/harness/controlplane"
)

// healthPath is kube-apiserver's check of its KMS v2 providers. It asks them one
// after another, each by kmsv2PluginProbe.check, and does not stop at the first
// that is unhealthy. (A path for each provider is there with KMS v1 only.)
const healthPath = "/healthz/kms-providers"

// maxBody bounds what is read of its answer, in bytes. The plugins' own texts
// are in it, one of 70 KiB.
const maxBody = 1 << 20

type apiServer struct {
	control   *controlplane.ControlPlane
	client    *http.Client
	providers int
}

// startAPIServer starts a kube-apiserver with a provider for each plugin, and
// waits until it is ready, for which it finds all of them healthy.
func startAPIServer(ctx context.Context, list []*subject) (*apiServer, error) {
	control, err := controlplane.Start(ctx, controlplane.Options{EncryptionConfig: encryptionConfig(list)})
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(control.RESTConfig())
	if err != nil {
		return nil, errors.Join(err, control.Stop())
	}
	return &apiServer{control: control, client: client, providers: len(list)}, nil
}

func (a *apiServer) stop() error {
	a.client.CloseIdleConnections()
	return a.control.Stop()
}

// encryptionConfig names the plugins in their order, so that the providers'
// numbers are theirs.
func encryptionConfig(list []*subject) []byte {
	var text strings.Builder
	text.WriteString(`apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
`)
	for i, p := range list {
		fmt.Fprintf(&text, "  - kms: {apiVersion: v2, name: parity-%d, endpoint: %q, timeout: %s}\n", i, p.plugin.Endpoint(), timeout)
	}
	text.WriteString("  - identity: {}\n")
	return []byte(text.String())
}

// ask returns kube-apiserver's opinion of each provider.
func (a *apiServer) ask(ctx context.Context) ([]opinion, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.control.URL()+healthPath, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask kube-apiserver: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("ask kube-apiserver: %w", err)
	}
	return parse(response.StatusCode, string(body), a.providers)
}

var checkName = regexp.MustCompile(`kms-provider-(\d+): `)

// parse reads the answer of healthPath: "ok", or one text in which each provider
// that is unhealthy has its check's name and an error (k8s.io/apiserver's
// encryptionconfig, kmsHealthChecker).
func parse(code int, body string, providers int) ([]opinion, error) {
	opinions := make([]opinion, providers)
	for i := range opinions {
		opinions[i].ok = true
	}
	names := checkName.FindAllStringSubmatchIndex(body, -1)
	switch {
	case code == http.StatusOK && body == "ok":
		return opinions, nil
	case code != http.StatusInternalServerError || len(names) == 0:
		return nil, fmt.Errorf("%s of kube-apiserver answers %d, and not what it is known to: %.300s", healthPath, code, body)
	}
	for i, name := range names {
		number, err := strconv.Atoi(body[name[2]:name[3]])
		if err != nil || number >= providers {
			return nil, fmt.Errorf("%s of kube-apiserver names a provider that is not there: %.300s", healthPath, body[name[0]:])
		}
		end := len(body)
		if i+1 < len(names) {
			end = names[i+1][0]
		}
		opinions[number] = opinion{verdict: "failed", why: strings.TrimRight(body[name[1]:end], ", \n")}
	}
	return opinions, nil
}
