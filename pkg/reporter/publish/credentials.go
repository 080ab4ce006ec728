package publish

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
	"github.com/kms-health/kms-health/pkg/filewatch"
)

// credentials are a kubeconfig and every file that it names, checked before each write:
// a rotated token, certificate or CA is used by the next write, without a restart and
// without a watch that could be lost. An unchanged file is not read again.
//
// client-go reloads some of these by itself, at intervals of minutes and by
// goroutines that outlive the client, and keeps every transport it ever made;
// so it is given contents here, never paths.
type credentials struct {
	kubeconfig string
	userAgent  string
	servers    []v1alpha1.Server // instead of the kubeconfig's

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

func (c *credentials) load() ([]*endpoint, []file, error) {
	content, err := readFile(c.kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	files := []file{content}
	config, err := clientcmd.Load(content.data)
	if err != nil {
		return nil, nil, err
	}
	if err := inline(config, filepath.Dir(c.kubeconfig), &files); err != nil {
		return nil, nil, err
	}
	endpoints, err := c.connect(config)
	return endpoints, files, err
}

// connect makes an endpoint for each server, all with the credentials, CAs and proxy of
// the current context.
func (c *credentials) connect(config *clientcmdapi.Config) ([]*endpoint, error) {
	context := config.Contexts[config.CurrentContext]
	cluster, ok := config.Clusters[context.Cluster]
	if !ok {
		return nil, fmt.Errorf("contexts: %q is not among the clusters", context.Cluster)
	}
	servers := c.servers
	if len(servers) == 0 {
		servers = []v1alpha1.Server{{URL: cluster.Server, TLSServerName: cluster.TLSServerName}}
	}
	proxy := environmentProxy
	if cluster.ProxyURL != "" {
		u, err := parseProxy("proxy-url", cluster.ProxyURL)
		if err != nil {
			return nil, err
		}
		proxy = http.ProxyURL(u)
	}
	// URLs are parsed here and not by client-go, whose errors show the whole URL.
	cluster.Server, cluster.TLSServerName, cluster.ProxyURL = "https://localhost", "", ""
	shared, err := clientcmd.NewDefaultClientConfig(*config, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, err
	}
	shared.UserAgent = c.userAgent
	endpoints := make([]*endpoint, 0, len(servers))
	for _, s := range servers {
		u, err := parseServer("server", s.URL)
		if err != nil {
			return nil, err
		}
		own := rest.CopyConfig(shared)
		own.Host, own.ServerName = u.String(), s.TLSServerName
		e, err := newEndpoint(own, u, proxy)
		if err != nil {
			return nil, err
		}
		endpoints = append(endpoints, e)
	}
	return endpoints, nil
}

// inline replaces the paths of the current context by the contents of the files
// behind them, and adds those files to the list. Each file must not be empty:
// client-go treats an empty CA as "trust the system's CAs", and would send the token to
// their servers, and an empty certificate or key as "send none".
func inline(config *clientcmdapi.Config, dir string, files *[]file) error {
	context, ok := config.Contexts[config.CurrentContext]
	if !ok {
		return fmt.Errorf("current-context: %q is not among the contexts", config.CurrentContext)
	}
	read := func(path *string, data *[]byte) error {
		if *path == "" {
			return nil
		}
		at := *path
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
		*data, *path = content.data, ""
		*files = append(*files, content)
		return nil
	}
	if cluster, ok := config.Clusters[context.Cluster]; ok {
		if err := read(&cluster.CertificateAuthority, &cluster.CertificateAuthorityData); err != nil {
			return err
		}
	}
	user, ok := config.AuthInfos[context.AuthInfo]
	if !ok {
		return nil // client-go has an error for it
	}
	var token []byte
	if err := errors.Join(
		read(&user.ClientCertificate, &user.ClientCertificateData),
		read(&user.ClientKey, &user.ClientKeyData),
		read(&user.TokenFile, &token),
	); err != nil {
		return err
	}
	if token != nil {
		user.Token = string(token)
	}
	return checkUser(user)
}

// checkUser returns an error for credentials that client-go would not send, or that are
// not valid in a request. It trims the token, as client-go does with a token's file.
func checkUser(user *clientcmdapi.AuthInfo) error {
	if user.Exec != nil || user.AuthProvider != nil {
		// exec plugins are not supported: no file may make the reporter run a program.
		return errors.New("users: exec and auth-provider are not supported; use a token, a tokenFile or a client certificate")
	}
	if (len(user.ClientCertificateData) == 0) != (len(user.ClientKeyData) == 0) {
		return errors.New("users: a client certificate needs its key, and a key its certificate")
	}
	token := strings.TrimSpace(user.Token)
	if user.Token != "" && token == "" || strings.ContainsFunc(token, unicode.IsControl) {
		return errors.New("users: the token holds control characters, or nothing but white space")
	}
	user.Token = token
	return nil
}
