package publish

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
)

// credentials are a kubeconfig and every file that it names, checked before each write:
// a rotated token, certificate or CA is used by the next write, without a restart and
// without a watch that could be lost. An unchanged file is not read again.
//
// client-go reloads some of these by itself, at intervals of minutes and by
// goroutines that outlive the client, keeps every transport it ever made, and
// would be half of this program's size and start time.
type credentials struct {
	kubeconfig string
	servers    []v1alpha1.Server // instead of the kubeconfig's
	timeout    time.Duration     // of a write, all servers together

	files     []file // what the endpoints in use were made from
	endpoints []*endpoint
}

// maxFile bounds each of these files, in bytes.
const maxFile = 1 << 20

// file is a file as it was read.
type file struct {
	path  string
	data  []byte
	stamp stamp // from before it was read
	// settled: the stamp was old when it was read, so that any later change gives another
	// stamp. (A kernel's file clock advances in steps of some milliseconds.)
	settled bool
}

// stamp changes with every change of a file, a rename over it included.
type stamp struct {
	device, inode uint64
	size          int64
	changed       time.Time
}

func stampOf(path string) (stamp, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return stamp{}, err
	}
	return stamp{st.Dev, st.Ino, st.Size, time.Unix(st.Ctim.Unix())}, nil
}

func readFile(path string) (file, error) {
	f := file{path: path}
	stamp, err := stampOf(path)
	if err == nil {
		f.stamp, f.settled = stamp, time.Since(stamp.changed) > time.Second
	}
	content := filewatch.Read(path, maxFile)
	f.data = content.Data
	return f, content.Err
}

// unchanged reports whether a file's content is unchanged, mostly by its stamp alone.
func (f *file) unchanged() bool {
	if stamp, err := stampOf(f.path); err == nil && f.settled && stamp == f.stamp {
		return true
	}
	now, err := readFile(f.path)
	if err != nil || !bytes.Equal(now.data, f.data) {
		return false
	}
	*f = now
	return true
}

// current returns an endpoint for each server, made from the current files. If these are
// invalid (only some of them replaced, a key that does not match its certificate), it
// returns the last valid endpoints, if any, with the error.
func (c *credentials) current() ([]*endpoint, error) {
	if c.endpoints != nil && c.unchanged() {
		return c.endpoints, nil
	}
	made, files, err := c.load()
	if err != nil {
		return c.endpoints, fmt.Errorf("kubeconfig %s: %w", c.kubeconfig, err)
	}
	c.close()
	c.endpoints, c.files = made, files
	return made, nil
}

func (c *credentials) unchanged() bool {
	for i := range c.files {
		if !c.files[i].unchanged() {
			return false
		}
	}
	return true
}

// close ends the connections in use.
func (c *credentials) close() {
	for _, e := range c.endpoints {
		e.disconnect()
	}
}

// load makes an endpoint for each server, all with the credentials, CAs and proxy of the current
// context.
func (c *credentials) load() ([]*endpoint, []file, error) {
	content, err := readFile(c.kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	cluster, user, err := parseKubeconfig(content.data)
	if err != nil {
		return nil, nil, err
	}
	files := []file{content}
	if err := inline(cluster, user, filepath.Dir(c.kubeconfig), &files); err != nil {
		return nil, nil, err
	}
	settings, err := tlsSettings(cluster, user)
	if err != nil {
		return nil, nil, err
	}
	proxy := environmentProxy
	if cluster.ProxyURL != "" {
		u, err := url.Parse(cluster.ProxyURL)
		u, err = checkProxy("proxy-url", u, err)
		if err != nil {
			return nil, nil, err
		}
		proxy = http.ProxyURL(u)
	}
	servers := c.servers
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
		endpoints = append(endpoints, newEndpoint(u, own, proxy, user.Token, c.timeout/time.Duration(len(servers))))
	}
	return endpoints, files, nil
}

// kubeconfig has the fields of a kubeconfig that are used or rejected here.
type kubeconfig struct {
	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string
		Context struct{ Cluster, User string }
	}
	Clusters []struct {
		Name    string
		Cluster cluster
	}
	Users []struct {
		Name string
		User user
	}
}

type cluster struct {
	Server        string
	TLSServerName string `json:"tls-server-name"`
	Insecure      bool   `json:"insecure-skip-tls-verify"`
	CA            string `json:"certificate-authority"`
	CAData        []byte `json:"certificate-authority-data"`
	ProxyURL      string `json:"proxy-url"`
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

// parseKubeconfig returns the cluster and the user of the current context.
func parseKubeconfig(data []byte) (*cluster, *user, error) {
	var k kubeconfig
	if err := yaml.Unmarshal(data, &k); err != nil {
		return nil, nil, err
	}
	for _, x := range k.Contexts {
		for _, c := range k.Clusters {
			for _, u := range k.Users {
				if x.Name != k.CurrentContext || c.Name != x.Context.Cluster || u.Name != x.Context.User {
					continue
				}
				if u.User.Exec != nil || u.User.AuthProvider != nil || u.User.Username != "" || u.User.As != "" {
					return nil, nil, errors.New("users: exec, auth-provider, username and as are not supported; use a token, a " +
						"tokenFile or a client certificate")
				}
				return &c.Cluster, &u.User, nil
			}
		}
	}
	return nil, nil, fmt.Errorf("current-context: %q is not among the contexts, or its cluster or user is missing",
		k.CurrentContext)
}

// inline reads the files that the kubeconfig names, and adds them to the list. None may be empty:
// without a CA the system's would be trusted, and their servers would get the token.
func inline(c *cluster, u *user, dir string, files *[]file) error {
	token := []byte(u.Token)
	for _, named := range []struct {
		path string
		data *[]byte
	}{{c.CA, &c.CAData}, {u.Certificate, &u.CertificateData}, {u.Key, &u.KeyData}, {u.TokenFile, &token}} {
		if named.path == "" {
			continue
		}
		at := named.path
		if !filepath.IsAbs(at) {
			at = filepath.Join(dir, at)
		}
		content, err := readFile(at)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(content.data)) == 0 {
			return fmt.Errorf("%s: is empty", at)
		}
		*named.data = content.data
		*files = append(*files, content)
	}
	u.Token = strings.TrimSpace(string(token))
	if len(token) > 0 && u.Token == "" || strings.ContainsFunc(u.Token, unicode.IsControl) {
		return errors.New("users: the token holds control characters, or nothing but white space")
	}
	return nil
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
