package publish

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
)

// credentials are a kubeconfig and every file that it names. A write reads them again if they were read credentialsAge
// ago, or if the write before it failed: a rotated token, certificate or CA is used without a restart or a watch.
//
// client-go reloads some of these, at intervals of minutes and by goroutines that outlive the client, keeps every
// transport it ever made, and would be half of this program's size and start time.
type credentials struct {
	config    *Config
	age       time.Duration     // how old they may be
	files     map[string][]byte // the contents that endpoints were made from, by path; empty if not readable
	endpoints []*endpoint
	read      time.Time // when the files were last read; zero: the next write reads them
}

const (
	credentialsAge = 10 * time.Second // how old those of a write are; a kubelet replaces a token minutes before its end
	maxFile        = 1 << 20          // bytes of each of these files
)

// current returns an endpoint for each server, made from the current files. If these are invalid (only some of them
// replaced, a key that does not match its certificate), it returns the last valid endpoints, if any, with the error.
func (c *credentials) current() ([]*endpoint, error) {
	if time.Since(c.read) < c.age {
		return c.endpoints, nil
	}
	c.read = time.Now()
	if c.endpoints != nil && c.unchanged() {
		return c.endpoints, nil
	}
	made, files, err := c.load()
	if err != nil {
		c.read = time.Time{}
		return c.endpoints, fmt.Errorf("kubeconfig %s: %w", c.config.Kubeconfig, err)
	}
	c.close()
	c.endpoints, c.files = made, files
	return made, nil
}

func (c *credentials) unchanged() bool {
	for path, data := range c.files {
		if !bytes.Equal(readFilled(path).Data, data) {
			return false
		}
	}
	return true
}

func (c *credentials) close() {
	for _, e := range c.endpoints {
		e.disconnect()
	}
}

// load makes an endpoint for each server, with the current context's credentials and CAs, and returns their files, too.
func (c *credentials) load() ([]*endpoint, map[string][]byte, error) {
	content := filewatch.Read(c.config.Kubeconfig, maxFile)
	if content.Err != nil {
		return nil, nil, content.Err
	}
	cluster, user, err := parseKubeconfig(content.Data)
	if err != nil {
		return nil, nil, err
	}
	files := map[string][]byte{c.config.Kubeconfig: content.Data}
	if err := c.inline(cluster, user, files); err != nil {
		return nil, nil, err
	}
	settings, err := tlsSettings(cluster, user)
	if err != nil {
		return nil, nil, err
	}
	servers := c.config.Servers
	if len(servers) == 0 {
		servers = []v1alpha1.Server{{URL: cluster.Server, TLSServerName: cluster.TLSServerName}}
	}
	var endpoints []*endpoint
	for _, s := range servers {
		u, err := parseServer(s.URL)
		if err != nil {
			return nil, nil, err
		}
		own := settings.Clone()
		own.ServerName = s.TLSServerName
		least := c.config.WriteTimeout.Duration / time.Duration(len(servers))
		endpoints = append(endpoints, newEndpoint(c.config, u, own, user.Token, least))
	}
	return endpoints, files, nil
}

// kubeconfig has the fields of a kubeconfig that are used or rejected here.
type kubeconfig struct {
	CurrentContext            string `json:"current-context"`
	Contexts, Clusters, Users []entry
}

// entry is an entry of one of the lists, which has one of the fields.
type entry struct {
	Name    string
	Context struct{ Cluster, User string }
	Cluster cluster
	User    user
}

// named returns the entry with a name, or an empty one.
func named(list []entry, name string) entry {
	for _, e := range list {
		if e.Name == name {
			return e
		}
	}
	return entry{}
}

type cluster struct {
	Server        string
	TLSServerName string `json:"tls-server-name"`
	Insecure      bool   `json:"insecure-skip-tls-verify"`
	CA            string `json:"certificate-authority"`
	CAData        []byte `json:"certificate-authority-data"`
	ProxyURL      any    `json:"proxy-url"`
}

type user struct {
	Certificate     string `json:"client-certificate"`
	CertificateData []byte `json:"client-certificate-data"`
	Key             string `json:"client-key"`
	KeyData         []byte `json:"client-key-data"`
	Token           string
	TokenFile       string
	Exec            any // no file may make the reporter run a program
	AuthProvider    any `json:"auth-provider"`
	Username        string
	As              string
}

func parseKubeconfig(data []byte) (*cluster, *user, error) {
	var k kubeconfig
	if err := yaml.Unmarshal(data, &k); err != nil {
		return nil, nil, err
	}
	x := named(k.Contexts, k.CurrentContext).Context
	c, u := named(k.Clusters, x.Cluster), named(k.Users, x.User)
	switch {
	case c.Name == "" || u.Name == "":
		return nil, nil, fmt.Errorf("current-context: %q is not among the contexts, or its cluster or user is missing",
			k.CurrentContext)
	case u.User.Exec != nil || u.User.AuthProvider != nil || u.User.Username != "" || u.User.As != "":
		return nil, nil, errors.New("users: exec, auth-provider, username and as are not supported; use a token, a " +
			"tokenFile or a client certificate")
	case c.Cluster.ProxyURL != nil:
		return nil, nil, errors.New("clusters: proxy-url is not supported: the API server must be reachable from the node")
	}
	return &c.Cluster, &u.User, nil
}

// inline reads the files that a kubeconfig names, if they are used, and adds them to files. As in client-go, data wins
// over the file of a CA, certificate or key. A tokenFile wins over a token, which is used until the file first has one.
func (c *credentials) inline(of *cluster, u *user, files map[string][]byte) error {
	token := []byte(u.Token)
	for _, f := range []struct {
		path string
		data *[]byte
	}{{of.CA, &of.CAData}, {u.Certificate, &u.CertificateData}, {u.Key, &u.KeyData}, {u.TokenFile, &token}} {
		isToken := f.data == &token
		if f.path == "" || len(*f.data) > 0 && !isToken {
			continue
		}
		at := f.path
		if !filepath.IsAbs(at) {
			at = filepath.Join(filepath.Dir(c.config.Kubeconfig), at)
		}
		content := readFilled(at)
		files[at] = content.Data
		switch {
		case content.Err == nil:
			*f.data = content.Data
		case !isToken || len(token) == 0 || len(c.files[at]) > 0:
			return content.Err
		}
	}
	u.Token = strings.TrimSpace(string(token))
	if len(token) > 0 && u.Token == "" || strings.ContainsFunc(u.Token, unicode.IsControl) {
		return errors.New("users: the token holds control characters, or nothing but white space")
	}
	return nil
}

// readFilled reads a file that must not be empty: with an empty CA file the system's CAs would be trusted.
func readFilled(path string) filewatch.Content {
	content := filewatch.Read(path, maxFile)
	if content.Err == nil && len(bytes.TrimSpace(content.Data)) == 0 {
		return filewatch.Content{Err: fmt.Errorf("%s: is empty", path)}
	}
	return content
}

func tlsSettings(c *cluster, u *user) (*tls.Config, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.Insecure}
	if len(c.CAData) > 0 {
		settings.RootCAs = x509.NewCertPool()
		if c.Insecure || !settings.RootCAs.AppendCertsFromPEM(c.CAData) {
			return nil, errors.New("clusters: certificate-authority must hold a PEM certificate, and must not be set with " +
				"insecure-skip-tls-verify")
		}
	}
	if len(u.CertificateData) > 0 || len(u.KeyData) > 0 {
		pair, err := tls.X509KeyPair(u.CertificateData, u.KeyData)
		if err != nil {
			return nil, fmt.Errorf("users: client certificate and key: %w", err)
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	return settings, nil
}

// parseServer shows no part of an invalid URL: in https://user:1/2@host the password looks like a port and a path.
func parseServer(server string) (*url.URL, error) {
	if v1alpha1.ValidServer(server) {
		return url.Parse(server)
	}
	return nil, errors.New("server: must be a URL such as https://localhost:6443, without user and password; its value " +
		"is not shown, since it may contain a password")
}
