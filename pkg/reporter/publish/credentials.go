package publish

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kms-health/kms-health/pkg/filewatch"
)

// credentials are a kubeconfig and every file that it names, read anew before
// each write: a rotated token, certificate or CA is used by the next write,
// without a restart and without a watch that could be lost.
//
// client-go reloads some of these by itself, at intervals of minutes and by
// goroutines that outlive the client, and keeps every transport it ever made;
// so it is given contents here, never paths.
type credentials struct {
	kubeconfig string
	userAgent  string

	files  []file // what the client in use was made from
	client *client
}

// maxFile bounds each of these files, in bytes.
const maxFile = 1 << 20

type file struct {
	path string
	data []byte
}

// client is what one set of credentials makes.
type client struct {
	server    *url.URL
	http      *http.Client
	transport *http.Transport
}

// current returns a client for the files as they are now. When they cannot be
// used (half of them replaced, a key that does not fit its certificate), it
// returns the last client that they did make, if any, with the error.
func (c *credentials) current() (*client, error) {
	if c.client != nil && c.unchanged() {
		return c.client, nil
	}
	made, files, err := load(c.kubeconfig, c.userAgent)
	if err != nil {
		return c.client, err
	}
	c.close()
	c.client, c.files = made, files
	return made, nil
}

func (c *credentials) unchanged() bool {
	for _, f := range c.files {
		if now := filewatch.Read(f.path, maxFile); now.Err != nil || !bytes.Equal(now.Data, f.data) {
			return false
		}
	}
	return true
}

// close gives up the connections of the client in use.
func (c *credentials) close() {
	if c.client != nil {
		c.client.transport.CloseIdleConnections()
	}
}

func load(kubeconfig, userAgent string) (*client, []file, error) {
	content := filewatch.Read(kubeconfig, maxFile)
	if content.Err != nil {
		return nil, nil, fmt.Errorf("kubeconfig: %w", content.Err)
	}
	files := []file{{kubeconfig, content.Data}}
	config, err := clientcmd.Load(content.Data)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	if err := inline(config, filepath.Dir(kubeconfig), &files); err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	restConfig, err := clientcmd.NewDefaultClientConfig(*config, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	restConfig.UserAgent = userAgent
	made, err := newClient(restConfig)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return made, files, nil
}

// inline replaces the paths of the current context by the contents of the files
// behind them, and adds those files to the list.
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
		content := filewatch.Read(at, maxFile)
		if content.Err != nil {
			return content.Err
		}
		*data = content.Data
		*path = ""
		*files = append(*files, file{at, *data})
		return nil
	}
	var errs []error
	if cluster, ok := config.Clusters[context.Cluster]; ok {
		errs = append(errs, read(&cluster.CertificateAuthority, &cluster.CertificateAuthorityData))
	}
	if user, ok := config.AuthInfos[context.AuthInfo]; ok {
		var token []byte
		errs = append(errs,
			read(&user.ClientCertificate, &user.ClientCertificateData),
			read(&user.ClientKey, &user.ClientKeyData),
			read(&user.TokenFile, &token))
		if token != nil {
			user.Token = string(bytes.TrimSpace(token))
			if user.Token == "" || bytes.ContainsFunc([]byte(user.Token), unicode.IsControl) {
				errs = append(errs, errors.New("the token's file holds no token"))
			}
		}
		if user.Exec != nil || user.AuthProvider != nil {
			// Nothing is run beside an API server because a file says so.
			errs = append(errs, errors.New("users: exec and auth-provider are not supported; use a token, a tokenFile or a client certificate"))
		}
	}
	return errors.Join(errs...)
}

// newClient speaks HTTP/1.1: with one request at a time HTTP/2 gains nothing,
// and costs a connection that stays in use when it is dead.
func newClient(config *rest.Config) (*client, error) {
	server, _, err := rest.DefaultServerURL(config.Host, config.APIPath, schema.GroupVersion{}, true)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	proxy := config.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	transport := &http.Transport{
		TLSClientConfig:     tlsConfig,
		Proxy:               proxy,
		DialContext:         (&net.Dialer{KeepAlive: 30 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     2 * time.Minute, // before a firewall forgets it
		WriteBufferSize:     4 << 10,
		ReadBufferSize:      4 << 10,
	}
	wrapped, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, err
	}
	return &client{server: server, transport: transport, http: &http.Client{
		Transport: wrapped,
		// An API server does not redirect a PATCH. Whoever does shall not get our
		// token, nor a GET.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}
