package controlplane

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kms-health/kms-health/test/harness/disk"
)

// The files that WriteKubeconfig writes. Tests replace some of them.
const (
	KubeconfigFile       = "kubeconfig"
	KubeconfigTokenFile  = "token"
	KubeconfigCAFile     = "ca.crt"
	KubeconfigClientCert = "tls.crt"
	KubeconfigClientKey  = "tls.key"
)

// Kubeconfig is the content of a kubeconfig.
type Kubeconfig struct {
	// Server is a URL. Empty: the URL of the API server, by IP address.
	Server string
	// CA is the client's trust bundle, PEM. Empty: the current serving CA.
	CA []byte
	// TLSServerName is requested and verified instead of Server's host. Empty: Server's host.
	TLSServerName string
	Credential    Credential
}

// WriteKubeconfig writes a kubeconfig into dir, which it creates if needed, and next to it the files that it names by
// absolute paths: CA, token, certificate and key. It replaces each file in one step, so a second write into the same
// folder rotates the credentials of a running client. It returns the path of the kubeconfig.
func (c *ControlPlane) WriteKubeconfig(dir string, k Kubeconfig) (string, error) {
	if k.Server == "" {
		k.Server = c.URL()
	}
	if len(k.CA) == 0 {
		k.CA = c.ServingCA().PEM()
	}
	return k.Write(dir)
}

// Write is WriteKubeconfig for any API server. Server and CA must be set.
func (k Kubeconfig) Write(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the folder of a kubeconfig: %w", err)
	}
	files := map[string][]byte{KubeconfigCAFile: k.CA}
	user := &clientcmdapi.AuthInfo{}
	if token := k.Credential.Token; token != "" {
		files[KubeconfigTokenFile] = []byte(token)
		user.TokenFile = filepath.Join(dir, KubeconfigTokenFile)
	}
	if pair := k.Credential.Certificate; pair != nil {
		files[KubeconfigClientCert], files[KubeconfigClientKey] = pair.Cert, pair.Key
		user.ClientCertificate = filepath.Join(dir, KubeconfigClientCert)
		user.ClientKey = filepath.Join(dir, KubeconfigClientKey)
	}
	const name = "controlplane"
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server:               k.Server,
			TLSServerName:        k.TLSServerName,
			CertificateAuthority: filepath.Join(dir, KubeconfigCAFile),
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: user},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return "", fmt.Errorf("encode a kubeconfig: %w", err)
	}
	for file, content := range files {
		if err := disk.Replace(filepath.Join(dir, file), content); err != nil {
			return "", err
		}
	}
	// The kubeconfig last, since it names the other files.
	path := filepath.Join(dir, KubeconfigFile)
	return path, disk.Replace(path, content)
}
