// Package reporters runs the reporters of simulated pods (package nodes) as processes, with the files, the identity and
// the environment that a kubelet gives them. Folders of this host replace the folders of the pod.
package reporters

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/disk"
)

const (
	// period is how often the pods are listed.
	period = 200 * time.Millisecond
	grace  = 3 * time.Second
)

// Options are the options of Start.
type Options struct {
	Cluster *controlplane.ControlPlane
	Binary  string
	// Dir gets the files of the processes, and <namespace>_<pod>.log.
	Dir string
	// Sockets returns the folder on this host with the sockets of a node.
	Sockets func(node string) string
}

// Reporters are the reporters' processes.
type Reporters struct {
	Options
	kube   *kubernetes.Clientset
	proxy  *httptest.Server // to the API server
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	running map[string]*controlplane.Child // by the UID of the pod
}

// Start runs a process for each running pod that the operator created, and keeps its files up to date, until the pod is
// deleted or Stop is called.
func Start(o Options) (*Reporters, error) {
	kube := kubernetes.NewForConfigOrDie(o.Cluster.RESTConfig())
	proxy, err := o.Cluster.StartFrontend(nil, func(forward http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { forward.ServeHTTP(w, AsInAPod(r)) }
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Reporters{
		Options: o, kube: kube, proxy: proxy, cancel: cancel, ended: make(chan struct{}), running: map[string]*controlplane.Child{},
	}
	go func() {
		defer close(r.ended)
		for ctx.Err() == nil {
			r.sync(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(period):
			}
		}
	}()
	return r, nil
}

// Stop ends all processes.
func (r *Reporters) Stop() {
	r.cancel()
	<-r.ended
	r.endOthers(nil)
	r.proxy.Close()
}

// PID returns the process ID of a pod's reporter, 0 while it does not run.
func (r *Reporters) PID(pod *corev1.Pod) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.running[string(pod.UID)]; p.Running() {
		return p.PID()
	}
	return 0
}

// sync starts and ends processes to match the pods. The next sync retries what failed.
func (r *Reporters) sync(ctx context.Context) {
	pods, err := r.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: contract.ModeLabel})
	if err != nil {
		return
	}
	there := map[string]bool{}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
			continue
		}
		there[string(p.UID)] = true
		if err := r.run(ctx, p); err != nil && ctx.Err() == nil {
			_ = os.WriteFile(r.path(p, "error"), []byte(err.Error()), 0o600)
		}
	}
	r.endOthers(there)
}

func (r *Reporters) endOthers(but map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, p := range r.running {
		if !but[uid] {
			_ = p.Stop(context.Background(), grace) // kills it after grace
			delete(r.running, uid)
		}
	}
}

func (r *Reporters) path(pod *corev1.Pod, suffix string) string {
	return filepath.Join(r.Dir, pod.Namespace+"_"+pod.Name+"."+suffix)
}

func (r *Reporters) run(ctx context.Context, pod *corev1.Pod) error {
	folder := r.path(pod, string(pod.UID))
	replace := []string{
		objects.ConfigFolder, filepath.Join(folder, "config"), objects.CredentialsFolder, folder,
		// A companion uses its node's network, where the API server listens.
		"https://localhost:6443", strings.Replace(r.proxy.URL, "127.0.0.1", "localhost", 1),
		"https://kubernetes.default.svc", r.proxy.URL,
	}
	container := pod.Spec.Containers[0]
	for _, m := range container.VolumeMounts {
		if strings.HasPrefix(m.Name, "sockets") {
			replace = append(replace, m.MountPath, r.Sockets(pod.Spec.NodeName))
		}
	}
	host := strings.NewReplacer(replace...)
	files, err := r.files(ctx, pod)
	if err != nil {
		return err
	}
	for name, text := range files {
		files[name] = host.Replace(text)
	}
	if err := disk.WriteVolume(filepath.Join(folder, "config"), files); err != nil {
		return err
	}
	if r.PID(pod) != 0 {
		return nil
	}
	token, err := r.Cluster.ServiceAccountToken(ctx, pod.Namespace, pod.Spec.ServiceAccountName, controlplane.TokenOptions{
		BoundTo: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "token"), []byte(token), 0o600); err != nil {
		return err
	}
	api, err := url.Parse(r.proxy.URL)
	if err != nil {
		return err
	}
	env := []string{
		"KUBERNETES_SERVICE_HOST=" + api.Hostname(), "KUBERNETES_SERVICE_PORT=" + api.Port(),
		contract.NodeVariable + "=" + pod.Spec.NodeName, contract.PodUIDVariable + "=" + string(pod.UID),
	}
	p, err := controlplane.StartChild("the reporter "+pod.Name, r.Binary, env, []string{
		host.Replace(container.Args[0]),
	}, r.path(pod, "log"))
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running[string(pod.UID)] = p
	return nil
}

// files returns the files of a pod, from its ConfigMap or its annotations.
func (r *Reporters) files(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
	for _, v := range pod.Spec.Volumes {
		if v.ConfigMap != nil {
			object, err := r.kube.CoreV1().ConfigMaps(pod.Namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
			if err != nil {
				return nil, fmt.Errorf("files of pod %s: %w", pod.Name, err)
			}
			return object.Data, nil
		}
	}
	return map[string]string{
		"config.yaml": pod.Annotations[contract.ConfigAnnotation],
		"kubeconfig":  pod.Annotations[contract.KubeconfigAnnotation],
	}, nil
}
