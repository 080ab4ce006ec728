package controlplane

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
)

var checkName = regexp.MustCompile(`kms-provider-(\d+): `)

// KMSProviders returns why kube-apiserver considers KMS v2 providers unhealthy, by their number in its
// configuration. kube-apiserver checks them one after another, each by kmsv2PluginProbe.check, and does not stop at
// an unhealthy one. It answers "ok", or one text with the check's name and an error for each unhealthy provider
// (k8s.io/apiserver's encryptionconfig, kmsHealthChecker).
func (c *ControlPlane) KMSProviders(ctx context.Context) (map[int]string, error) {
	client, err := rest.HTTPClientFor(c.RESTConfig())
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL()+"/healthz/kms-providers", nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	body, failures := string(raw), map[int]string{}
	names := checkName.FindAllStringSubmatchIndex(body, -1)
	switch {
	case response.StatusCode == http.StatusOK && body == "ok":
		return failures, nil
	case response.StatusCode != http.StatusInternalServerError || len(names) == 0:
		return nil, fmt.Errorf("kube-apiserver answers %s, and not what it is known to: %.300s", response.Status, body)
	}
	for i, name := range names {
		number, err := strconv.Atoi(body[name[2]:name[3]])
		if err != nil {
			return nil, err
		}
		end := len(body)
		if i+1 < len(names) {
			end = names[i+1][0]
		}
		failures[number] = strings.TrimRight(body[name[1]:end], ", \n")
	}
	return failures, nil
}
