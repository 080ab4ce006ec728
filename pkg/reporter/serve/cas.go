package serve

import (
	"crypto/x509"
	"fmt"

	"github.com/kms-health/kms-health/pkg/filewatch"
)

// maxFile bounds a file of certificates or keys, in bytes.
const maxFile = 1 << 20

func readCAs(path string) (*x509.CertPool, error) {
	content := filewatch.Read(path, maxFile)
	if content.Err != nil {
		return nil, fmt.Errorf("client CAs: %w", content.Err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content.Data) {
		return nil, fmt.Errorf("client CAs: %s holds no PEM certificate", path)
	}
	return pool, nil
}
