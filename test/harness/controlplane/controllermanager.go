package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kms-health/kms-health/test/harness/program"
)

const (
	// It starts within some seconds when alone on two cores.
	controllerManagerStartTimeout = 90 * time.Second
	// The user that the bootstrap roles of RBAC are bound to.
	controllerManagerUser = "system:kube-controller-manager"
)

// Files in the folder of the control plane.
const (
	controllerManagerDir = "controller-manager"
	rootCAFile           = "root-ca.crt"
)

// RootCAPublisherController is the name of the controller that writes the ConfigMaps kube-root-ca.crt
// (k8s.io/kubernetes/cmd/kube-controller-manager/names).
const RootCAPublisherController = "root-ca-certificate-publisher-controller"

// OperatorControllers are those that tests of an operator need: ServiceAccounts
// and their tokens, the workloads that it creates, and what cleans up. No
// controller evicts pods from a node that stopped reporting. The garbage collector
// observes a new CRD's objects within 30 seconds, not at once.
var OperatorControllers = []string{
	"serviceaccount-controller", "serviceaccount-token-controller", RootCAPublisherController,
	"daemonset-controller", "deployment-controller", "replicaset-controller",
	"garbage-collector-controller", "namespace-controller", "clusterrole-aggregation-controller",
}

// StartControllerManager runs kube-controller-manager, for the first time or
// again, with these controllers, and waits until all report that they run. The API server
// must serve. From then on the API server may come and go, but what watches it looks
// for it ever more seldom, up to once a minute.
func (c *ControlPlane) StartControllerManager(ctx context.Context, controllers ...string) error {
	path, err := binary("kube-controller-manager")
	if err != nil {
		return err
	}
	if c.controllers().Running() {
		return errors.New("start kube-controller-manager: it is running already")
	}
	kubeconfig, err := c.writeControllerManagerFiles()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, controllerManagerStartTimeout)
	defer cancel()
	port, err := freePort()
	if err != nil {
		return err
	}
	args := c.controllerManagerArgs(port, kubeconfig, controllers)
	p, err := StartChild("kube-controller-manager", path, program.OthersEnv(), args, c.logPath("kube-controller-manager"))
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.manager = p
	c.mu.Unlock()
	err = p.await(ctx, func(ctx context.Context) error { return controllersRun(ctx, port, controllers) })
	if err != nil {
		return errors.Join(p.explain(fmt.Errorf("start kube-controller-manager: %w", err)), p.Kill())
	}
	return nil
}

// KillControllerManager ends it by SIGKILL and waits until it has ended.
func (c *ControlPlane) KillControllerManager() error { return c.controllers().Kill() }

func (c *ControlPlane) controllers() *Child {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.manager
}

// writeControllerManagerFiles returns the path of its kubeconfig.
func (c *ControlPlane) writeControllerManagerFiles() (string, error) {
	pair, err := c.SignUser(certLifetime, controllerManagerUser)
	if err != nil {
		return "", err
	}
	ca, name := c.servingCA.PEM(), c.servingNames[0]
	if err := writeFile(filepath.Join(c.dir, rootCAFile), ca); err != nil {
		return "", err
	}
	return c.WriteKubeconfig(filepath.Join(c.dir, controllerManagerDir), Kubeconfig{
		CA: ca, TLSServerName: name, Credential: Credential{Certificate: pair},
	})
}

func (c *ControlPlane) controllerManagerArgs(port int, kubeconfig string, controllers []string) []string {
	file := func(name string) string { return filepath.Join(c.dir, name) }
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--controllers=" + strings.Join(controllers, ","),
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + file(signingKeyFile),
		"--root-ca-file=" + file(rootCAFile),

		// Its port is only used to check whether it runs.
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + file(servingCertFile),
		"--tls-private-key-file=" + file(servingKeyFile),
		"--profiling=false",

		// Two cores, and few objects: a worker each, that need not wait.
		"--kube-api-qps=200",
		"--kube-api-burst=400",
	}
	for _, of := range []string{"daemonset", "deployment", "gc", "namespace", "replicaset", "serviceaccount-token"} {
		args = append(args, "--concurrent-"+of+"-syncs=1")
	}
	return args
}

// controllersRun reads the health of each: until they are started, its
// /healthz reports "ok" without them. A name that is a pattern is not asked for.
func controllersRun(ctx context.Context, port int, names []string) error {
	// A certificate that the test replaces is the API server's; whose child
	// this is we know.
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}}
	body, err := get(ctx, client, "https://"+loopback(port)+"/healthz?verbose", "")
	if err != nil {
		return err
	}
	for _, name := range names {
		if !bytes.Contains(body, []byte("[+]"+name+" ok")) {
			return fmt.Errorf("%s does not run yet", name)
		}
	}
	return nil
}
