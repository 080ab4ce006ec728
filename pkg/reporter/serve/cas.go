package serve

import (
	"crypto/x509"
	"fmt"
	"os"
)

func readCAs(path string) (*x509.CertPool, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("client CAs: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("client CAs: %s holds no PEM certificate", path)
	}
	return pool, nil
}
