package main

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/pkg/rollup"
	"github.com/kms-health/kms-health/test/controlplane"
)

// clusterOperator is the operator's own.
const clusterOperator = "kms-health"

func onAgain(s *stage) error {
	s.title("KMS is turned on again.")
	s.note("$ sed -i '/managementState/d' operator.yaml")
	if err := s.configure(operatorConfiguration("1s")); err != nil {
		return err
	}
	if err := s.setEncryption("6", encryption("2", "identity")); err != nil {
		return err
	}
	if err := s.rollAll("6", "2"); err != nil {
		return err
	}
	return s.expect("all three nodes report", all("2=healthy"), interval)
}

// seen ends the demo: what an administrator sees of a fault and of its end.
func seen(s *stage) error {
	const node = "master-1"
	s.title("What an administrator sees of a fault, and of its end.")
	if err := s.awaitOperator(rollup.False); err != nil {
		return err
	}
	if err := s.kubectl(0, "get", "clusteroperators"); err != nil {
		return err
	}
	began := time.Now()
	if err := s.tell(node, "2", "unhealthy", "vault is sealed"); err != nil {
		return err
	}
	if err := s.awaitRollUp(rollup.True); err != nil {
		return err
	}
	s.note("The vault behind the plugin on %s is sealed. %d ms later, on kubeapiservers/cluster:", node, time.Since(began).Milliseconds())
	if err := s.kubectl(0, "get", "kubeapiserver", "cluster", "-o", `go-template={{range .status.conditions}}{{if eq .type "KMSPluginsDegraded"}}{{.type}} is {{.status}}, {{.reason}}:{{"\n"}}{{.message}}{{end}}{{end}}`); err != nil {
		return err
	}
	if err := s.kubectlExits(1, "kms-health", "status"); err != nil {
		return err
	}
	if err := s.awaitOperator(rollup.True); err != nil {
		return err
	}
	s.note("A cluster operator tells what lasts: 2 minutes as shipped, %s here (--degraded-inertia).", inertia)
	if err := s.kubectl(0, "get", "clusteroperators"); err != nil {
		return err
	}
	if err := s.tell(node, "2", "heal"); err != nil {
		return err
	}
	if err := s.awaitOperator(rollup.False); err != nil {
		return err
	}
	s.note("It is unsealed:")
	if err := s.kubectlExits(0, "kms-health", "status"); err != nil {
		return err
	}
	return s.kubectl(0, "get", "clusteroperators")
}

// awaitRollUp waits until the roll-up of kubeapiservers/cluster says so.
func (s *stage) awaitRollUp(status string) error {
	return s.awaitStatus(rollup.Degraded, status, func() (map[string]rollup.Condition, error) {
		o, err := s.client.Resource(controlplane.OperatorGVR(controlplane.KubeAPIServers)).Get(s.ctx, controlplane.ClusterObject, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return rollup.Read(o).Conditions, nil
	})
}

// awaitOperator waits until ClusterOperator/kms-health is Degraded or not.
func (s *stage) awaitOperator(status string) error {
	return s.awaitStatus("Degraded", status, func() (map[string]rollup.Condition, error) {
		o, err := s.client.Resource(controlplane.ConfigGVR(controlplane.ClusterOperators)).Get(s.ctx, clusterOperator, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return rollup.ReadConditions(o), nil
	})
}

func (s *stage) awaitStatus(kind, status string, read func() (map[string]rollup.Condition, error)) error {
	return s.until(kind+" is "+status, func() error {
		conditions, err := read()
		if err != nil {
			return err
		}
		if c := conditions[kind]; c.Status != status {
			return fmt.Errorf("it is %s: %s", c.Status, c.Message)
		}
		return nil
	})
}
