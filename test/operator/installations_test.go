//go:build integration

package operator

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

func decoded(data string) string {
	raw, err := base64.StdEncoding.DecodeString(strings.Trim(data, `"`))
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// A second installation changes nothing while the first is there, and takes its place
// once that is gone.
func TestSecondInstallationRefusesToAct(t *testing.T) {
	const other = "other-installation"
	if _, err := kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeNamespace(t, other) })
	first, second := newOperator(t), newOperator(t, "--namespace", other)
	health := freeAddress(t)
	second.more = []string{"--health-bind-address", health}
	setEncryption(t, apiservers.Kube, apiservers.Encryption("1", "identity"), "1")
	rollStatic(t, "1", false)
	t.Cleanup(func() { removeStatics(t) })
	for _, op := range []*operatorProcess{first, second} {
		op.configure(targets(apiservers.Kube.Target()))
	}
	first.start("")
	awaitPods(t, operatorNamespace, companions, 3)
	awaitCondition(t, apiservers.Kube.Resource, "True", "SocketsInPods")
	was, uids := snapshot(t, first), podUIDs(t, companions)

	admin, err := cluster.WriteKubeconfig(filepath.Join(second.dir, "admin"), controlplane.Kubeconfig{Credential: controlplane.Credential{Token: cluster.RESTConfig().BearerToken}})
	if err != nil {
		t.Fatal(err)
	}
	second.run(admin)
	second.awaitLogged("the other installation is reported", "OtherInstallation", 1)
	ready := func() int {
		response, err := http.Get("http://" + health + "/readyz")
		if err != nil {
			return 0
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	never(t, 5*time.Second, func() error {
		if now := snapshot(t, first); now != was {
			return fmt.Errorf("the second installation made it\n%s\nit was\n%s", now, was)
		}
		if now := podUIDs(t, companions); !maps.Equal(now, uids) {
			return fmt.Errorf("companions are %v, were %v", now, uids)
		}
		if code := ready(); code == http.StatusOK {
			return fmt.Errorf("the second installation is ready")
		}
		return nil
	})

	first.configure("targets: []\n")
	eventually(t, "the first one's companions are deleted", func() error {
		if n := len(podUIDs(t, companions)); n > 0 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	awaitPods(t, other, companions, 3)
	first.kill(syscall.SIGTERM)
	eventually(t, "the second installation is ready", func() error {
		if code := ready(); code != http.StatusOK {
			return fmt.Errorf("%d", code)
		}
		return nil
	})
	second.configure("targets: []\n")
	second.awaitNothingLeft()
}

func removeNamespace(t *testing.T, name string) {
	t.Helper()
	eventually(t, "namespace "+name+" is removed", func() error {
		err := kube.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is being removed: %w", err)
	})
}
