package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kms-health/kms-health/test/controlplane"
	"github.com/kms-health/kms-health/test/manifests/install"
)

const (
	// parting bounds the wait for the operator to end.
	parting = 10 * time.Second
	// inertia is how long something is bad before the ClusterOperator tells.
	inertia = 3 * time.Second
)

func (s *stage) operatorFile() string { return filepath.Join(s.dir, "operator.yaml") }

// operatorConfiguration is the operator's file.
func operatorConfiguration(interval string) string {
	return `apiVersion: kmshealth.openshift.io/v1alpha1
kind: OperatorConfiguration
probe:
  interval: ` + interval + `
targets:
- name: kube-apiserver
  resource: kubeapiservers
  namespace: openshift-kube-apiserver
  podSelector: {apiserver: "true"}
  container: kube-apiserver
`
}

// configure puts a file of the operator's in place, whole.
func (s *stage) configure(text string) error {
	if err := os.WriteFile(s.operatorFile()+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(s.operatorFile()+".new", s.operatorFile())
}

// startOperator runs the operator as its ServiceAccount.
func (s *stage) startOperator() error {
	if s.operatorKubeconfig == "" {
		token, err := s.cluster.ServiceAccountToken(s.ctx, home, install.ServiceAccount, controlplane.TokenOptions{Lifetime: 24 * time.Hour})
		if err != nil {
			return err
		}
		if s.operatorKubeconfig, err = s.cluster.WriteKubeconfig(filepath.Join(s.dir, "operator"), controlplane.Kubeconfig{
			Credential: controlplane.Credential{Token: token},
		}); err != nil {
			return err
		}
	}
	var err error
	s.operator, err = controlplane.StartChild("kms-health-operator", program("kms-health-operator"), nil, []string{
		"run", "--config", s.operatorFile(), "--kubeconfig", s.operatorKubeconfig,
		"--namespace", home, "--image", "kms-health-reporter:demo",
		// The one replica that is killed gives no lease back.
		"--leader-elect=false", "--metrics-bind-address=0", "--health-bind-address=0",
		"--degraded-inertia=" + inertia.String(),
	}, s.logPath("operator"))
	return err
}

// killAtFirst kills the operator when the first companion has a file with this
// interval.
func (s *stage) killAtFirst(events <-chan watch.Event, every time.Duration) error {
	timeout := time.After(patience)
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return errors.New("the watch of the companions ended")
			}
			if pod, ok := e.Object.(*corev1.Pod); ok && intervalIn(pod) == every {
				err := s.operator.Kill()
				s.operator = nil
				return err
			}
		case <-timeout:
			return fmt.Errorf("expected, but not seen within %s: a companion's file says %s", patience, every)
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
}

// stopOperator ends the operator by SIGTERM. One that does not end well, or has
// ended by itself, is an error.
func (s *stage) stopOperator() error {
	err := s.operator.Stop(context.Background(), parting)
	if err == nil {
		err = s.operator.Err()
	}
	if err != nil {
		return fmt.Errorf("kms-health-operator: %w", err)
	}
	return nil
}
