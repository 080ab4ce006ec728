package controlplane

import "path/filepath"

// ServingCA is the authority that the API server's certificate comes from.
func (c *ControlPlane) ServingCA() *CA { return c.servingCA }

// writeServingCertificate writes the certificate that the API server starts with.
func (c *ControlPlane) writeServingCertificate(ca *CA, names ...string) error {
	pair, err := ca.Serving(names...)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(c.dir, servingKeyFile), pair.Key); err != nil {
		return err
	}
	c.servingCA, c.servingNames = ca, names
	return writeFile(filepath.Join(c.dir, servingCertFile), pair.Cert)
}
