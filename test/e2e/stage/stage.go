// Package stage puts kms-health on a real cluster (package cluster), beside API
// servers that are encrypted by development plugins, and plays the operators of
// OpenShift that make such API servers: their Secrets, their revisions, the writing
// of everything anew after a change of keys.
package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kms-health/kms-health/test/apiservers"
	"github.com/kms-health/kms-health/test/controlplane"
	"github.com/kms-health/kms-health/test/e2e/cluster"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// Options of New.
type Options struct {
	// Root is the checkout that kms-health is built from.
	Root string
	// Assets is the folder of the Kubernetes binaries, and etcd.
	Assets string
	// Dir is where programs and images are built.
	Dir   string
	Nodes int
	Log   io.Writer
}

// Stage is a cluster with everything on it.
type Stage struct {
	*cluster.Cluster
	Config  *rest.Config
	Kube    kubernetes.Interface
	Dynamic dynamic.Interface

	options Options

	mu       sync.Mutex
	revision int
	current  cluster.Revision
}

// New starts a cluster without kms-health and without encryption.
func New(ctx context.Context, o Options) (_ *Stage, err error) {
	s := &Stage{options: o, revision: 1}
	if s.Cluster, err = cluster.Start(ctx, cluster.Options{Assets: o.Assets, Nodes: o.Nodes, Log: o.Log}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if s.Config, err = s.RESTConfig(); err != nil {
		return nil, err
	}
	if s.Kube, err = kubernetes.NewForConfig(s.Config); err != nil {
		return nil, err
	}
	if s.Dynamic, err = dynamic.NewForConfig(s.Config); err != nil {
		return nil, err
	}
	return s, nil
}

// Roll is what OpenShift does for a new encryption config of kube-apiserver: the live
// Secret and that of the revision, a pause in which the old pods run beside the new
// Secret, and then a revision of the static pod on one node after the other. With
// change the manifest is changed as its owner would.
type Roll struct {
	// Encryption is the EncryptionConfiguration. Empty: none.
	Encryption string
	Plugins    []string
	// Pause is between the Secret and the first new pod.
	Pause time.Duration
	// Change and Files are cluster.Revision's.
	Change func([]byte) ([]byte, error)
	Files  map[string][]byte
}

// say tells how far things are.
func (s *Stage) say(format string, args ...any) {
	if s.options.Log != nil {
		fmt.Fprintf(s.options.Log, "[%s] %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
	}
}

// Roll makes a revision, and waits until it runs on all nodes.
func (s *Stage) Roll(ctx context.Context, r Roll) error {
	s.mu.Lock()
	s.revision++
	revision := cluster.Revision{Number: s.revision, Encryption: r.Encryption, Plugins: r.Plugins, Change: r.Change, Files: r.Files}
	s.current = revision
	s.mu.Unlock()
	s.SetFirst(revision)
	if r.Encryption != "" {
		for _, name := range []string{strconv.Itoa(revision.Number), ""} {
			if err := s.PutEncryptionSecret(ctx, apiservers.Kube.Namespace, name, r.Encryption); err != nil {
				return err
			}
		}
	} else {
		err := s.Kube.CoreV1().Secrets(apiservers.Kube.Namespace).Delete(ctx, apiservers.EncryptionSecret, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	select {
	case <-time.After(r.Pause):
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, n := range s.Nodes() {
		if err := n.Install(revision); err != nil {
			return err
		}
		if err := s.awaitRevision(ctx, n, revision.Number); err != nil {
			return err
		}
		s.say("kube-apiserver of %s is Ready with revision %d", n.Name, revision.Number)
	}
	return nil
}

// PutEncryptionSecret writes the Secret of a revision, or the live one, whose revision
// is empty.
func (s *Stage) PutEncryptionSecret(ctx context.Context, namespace, revision, encryption string) error {
	return apiservers.Apply(ctx, s.Dynamic, "encryption-controller", apiservers.Secrets, namespace, apiservers.Secret(revision, encryption))
}

func (s *Stage) awaitRevision(ctx context.Context, n *cluster.Node, revision int) error {
	return Eventually(ctx, 3*time.Minute, fmt.Sprintf("kube-apiserver of %s is Ready with revision %d", n.Name, revision), func(ctx context.Context) error {
		pod, err := s.Kube.CoreV1().Pods(cluster.APIServerNamespace).Get(ctx, cluster.APIServerName+"-"+n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := pod.Labels["revision"]; got != strconv.Itoa(revision) {
			return fmt.Errorf("revision is %s", got)
		}
		if !Ready(pod) {
			return errors.New("it is not Ready")
		}
		return nil
	})
}

// Ready says whether a pod is.
func Ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// WriteAnew writes all Secrets and ConfigMaps as they are, so that each is encrypted
// with the key that writes now: OpenShift's migration of the storage.
func (s *Stage) WriteAnew(ctx context.Context) error {
	for _, resource := range []string{"secrets", "configmaps"} {
		objects := s.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource})
		all, err := objects.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, o := range all.Items {
			api := objects.Namespace(o.GetNamespace())
			err := Eventually(ctx, 30*time.Second, "an object is written anew", func(context.Context) error {
				now, err := api.Get(ctx, o.GetName(), metav1.GetOptions{})
				if err == nil {
					_, err = api.Update(ctx, now, metav1.UpdateOptions{})
				}
				if apierrors.IsNotFound(err) {
					return nil
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Unencrypted returns the keys in etcd of all Secrets and ConfigMaps whose value does
// not begin with prefix, and how many there are in all.
func (s *Stage) Unencrypted(ctx context.Context, prefix string) (others []string, all int, err error) {
	for _, folder := range []string{"/registry/secrets/", "/registry/configmaps/"} {
		found, err := s.Etcd(ctx, folder)
		if err != nil {
			return nil, 0, err
		}
		for _, o := range found {
			all++
			if !strings.HasPrefix(string(o.Value), prefix) {
				others = append(others, string(o.Key))
			}
		}
	}
	return others, all, nil
}

// Plugin commands a plugin of a node's kube-apiserver.
func (s *Stage) Plugin(n *cluster.Node, keyID string) (*kmsplugin.Client, error) {
	return kmsplugin.NewClient(n.Path(cluster.PluginControl(keyID)))
}

// Eventually waits until check returns nil, and says what for if it does not.
func Eventually(ctx context.Context, limit time.Duration, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	var last error
	for {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := check(call)
		cancel()
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %v for this: %s: %w", time.Since(start).Round(time.Millisecond), what, last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// OperatorResource returns one of the operator resources.
func (s *Stage) OperatorResource(ctx context.Context, server apiservers.Server) (map[string]any, error) {
	o, err := s.Dynamic.Resource(controlplane.OperatorGVR(server.Resource)).Get(ctx, controlplane.ClusterObject, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return o.Object, nil
}
