//go:build integration

package process

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

func TestMetricsNeedTheRightToGetThem(t *testing.T) {
	address := fixture.FreeAddress(t)
	certs := t.TempDir()
	ca, err := controlplane.NewCA("metrics")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Serving("metrics.test")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key} {
		if err := os.WriteFile(filepath.Join(certs, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	op := fixture.NewOperator(t)
	op.More = []string{"--metrics-bind-address", address, "--metrics-cert-dir", certs}
	op.Configure("targets: []\n")
	op.Start("")

	for _, name := range []string{"scraper", "stranger"} {
		if err := fixture.Cluster.CreateServiceAccount(t.Context(), fixture.Namespace, name); err != nil {
			t.Fatal(err)
		}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "scraper"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	if _, err := fixture.Kube.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "scraper"},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "scraper"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "scraper", Namespace: fixture.Namespace}}}
	if _, err := fixture.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM())
	scraper := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "metrics.test"}}}
	get := func(who string) (int, string, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
		if err != nil {
			return 0, "", err
		}
		switch who {
		case "":
		case "garbage":
			r.Header.Set("Authorization", "Bearer garbage")
		default:
			token, err := fixture.Cluster.ServiceAccountToken(t.Context(), fixture.Namespace, who, controlplane.TokenOptions{})
			if err != nil {
				return 0, "", err
			}
			r.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := scraper.Do(r)
		if err != nil {
			return 0, "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return response.StatusCode, string(body), err
	}
	for who, want := range map[string]int{"": 401, "garbage": 401, "stranger": 403, "scraper": 200} {
		fixture.Eventually(t, who+" is answered", func() error {
			code, body, err := get(who)
			if err != nil {
				return err
			}
			if code != want {
				return fmt.Errorf("%d, must be %d", code, want)
			}
			if want == 200 && !strings.Contains(body, "kms_health_operator_configuration_valid 1") {
				return fmt.Errorf("%s", body)
			}
			return nil
		})
	}
}
