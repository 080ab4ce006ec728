package main

import (
	"errors"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kms-health/kms-health/test/controlplane"
)

// credential says where an API server is, and who comes.
type credential struct {
	server string // URL
	ca     []byte
	token  string
}

// credential is that of the reporters in the cluster.
func (l *lab) credential() credential {
	return credential{l.cluster.URL(), l.cluster.ServingCA().PEM(), l.token}
}

// nobody is a credential for a port at which nobody listens.
func nobody() (credential, error) {
	ca, err := controlplane.NewCA("nobody")
	if err != nil {
		return credential{}, err
	}
	address, err := freeAddress()
	return credential{"https://" + address, ca.PEM(), "nobody"}, err
}

// kubeconfig writes one for the site, with token and CA in files of their own as
// they are in production, and returns its path.
func (s *site) kubeconfig(c credential) (string, error) {
	dir := filepath.Join(s.dir, "credentials")
	path, ca, token := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	const name = "bench"
	return path, errors.Join(
		os.MkdirAll(dir, 0o700),
		os.WriteFile(ca, c.ca, 0o600),
		os.WriteFile(token, []byte(c.token), 0o600),
		clientcmd.WriteToFile(clientcmdapi.Config{
			Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: c.server, CertificateAuthority: ca}},
			AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {TokenFile: token}},
			Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
			CurrentContext: name,
		}, path))
}
