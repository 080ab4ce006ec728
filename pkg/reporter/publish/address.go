package publish

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// A URL is shown only if it was parsed here. No part of a URL that cannot be parsed is
// shown: "https://user:1234/word@host" has the port 1234.

// errNotShown is the error of an invalid URL.
func errNotShown(what, example string) error {
	return fmt.Errorf("%s: must be a URL such as %s; its value is not shown, since it may contain a password", what,
		example)
}

// parseServer parses the URL of an API server, without user and password.
func parseServer(server string) (*url.URL, error) {
	u, err := url.Parse(server)
	if err != nil || !v1alpha1.ValidServer(server) {
		return nil, errNotShown("server", "https://localhost:6443, without user and password")
	}
	return u, nil
}

// environmentProxy is the proxy according to HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
func environmentProxy(r *http.Request) (*url.URL, error) {
	u, err := http.ProxyFromEnvironment(r)
	return checkProxy("proxy of the environment (HTTPS_PROXY, HTTP_PROXY)", u, err)
}

// checkProxy rejects what is no proxy's URL, which may have a user and a password, although
// net/http would use it: in "https://user:1234/word@host" the host is "user:1234", and would be
// shown. No URL at all is none.
func checkProxy(what string, u *url.URL, err error) (*url.URL, error) {
	if err == nil && u == nil {
		return nil, nil
	}
	if err != nil || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) ||
		u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errNotShown(what, "http://proxy:3128")
	}
	return u, nil
}
