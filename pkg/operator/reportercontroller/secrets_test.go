package reportercontroller

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/operator/delivery"
	"github.com/kms-health/kms-health/pkg/operator/informers"
	"github.com/kms-health/kms-health/pkg/operator/objects"
	"github.com/kms-health/kms-health/test/harness/must"
)

// encryptedBy returns a Secret with an encryption config of one plugin; 0: of none.
func encryptedBy(name string, plugin int) *unstructured.Unstructured {
	provider := "{identity: {}}"
	if plugin > 0 {
		provider = fmt.Sprintf("{kms: {apiVersion: v2, name: x, endpoint: 'unix:///run/kmsplugin/kms-%d.sock'}}", plugin)
	}
	o := object("v1", "Secret", "ns", name)
	o.Object["data"] = map[string]any{"encryption-config": base64.StdEncoding.EncodeToString([]byte(
		"apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n" +
			"resources: [{resources: [secrets], providers: [" + provider + "]}]\n"))}
	return o
}

// The Secret of a revision is followed once the Role names it, which the operator itself extends.
func TestPluginSetOfARevisionIsThatOfItsSecret(t *testing.T) {
	const live, fifth = "encryption-config", "encryption-config-5"
	for name, c := range map[string]struct {
		secret    *unstructured.Unstructured // nil: it does not exist
		forbidden bool
		want      string // the recorded sets
	}{
		"another plugin":       {encryptedBy(fifth, 2), false, "map[5:2]"},
		"encrypted otherwise":  {encryptedBy(fifth, 0), false, "map[5:]"},
		"from before KMS":      {nil, false, "map[5:]"},
		"it may never be read": {encryptedBy(fifth, 2), true, "map[]"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRequests(nil)
			pod, err := runtime.DefaultUnstructuredConverter.ToUnstructured(apiPod("a", "1", onHost, revision("5")))
			must.Succeed(t, err)
			pod["apiVersion"], pod["kind"] = "v1", "Pod"
			must.Succeed(t, r.Tracker().Create(informers.Pods, &unstructured.Unstructured{Object: pod}, "ns"))
			must.Succeed(t, r.Tracker().Create(informers.Secrets, encryptedBy(live, 1), "ns"))
			for i, policy := range []schema.GroupVersionResource{informers.Policies, informers.PolicyBindings} {
				must.Succeed(t, r.Tracker().Create(policy, objects.Policy()[i], ""))
			}
			if c.secret != nil {
				must.Succeed(t, r.Tracker().Create(informers.Secrets, c.secret, "ns"))
			}
			r.PrependReactor("list", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
				is := a.(clienttesting.ListAction).GetListRestrictions().Fields.String() == "metadata.name="+fifth
				return is && c.forbidden, nil, noRight("secrets")
			})
			r.run(t, oneTarget)
			role, err := r.Tracker().Get(informers.ClusterRoles, "", contract.ReporterName(kube))
			must.Succeed(t, err)
			state, err := delivery.ParseState(role.(*unstructured.Unstructured).GetAnnotations()[contract.StateAnnotation])
			must.Succeed(t, err)
			got := map[string]string{}
			for revision, set := range state.Revisions {
				got[revision] = delivery.WriteKey(set)
			}
			must.Equal(t, "the recorded sets", fmt.Sprint(got), c.want)
			if lists := count(r.all, "list secrets") + count(r.all, "get secrets"); !c.forbidden && lists > 3 {
				t.Errorf("%d reads of Secrets in 10 minutes", lists)
			}
		})
	}
}

// A live Secret that may no longer be read may have another write key by now. An API server that is away changes none.
func TestLiveSetIsNotKnownOnceItsSecretMayNotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"denied":     {noRight("secrets"), "published off false, read false"},
		"unanswered": {errors.New("connection refused"), "published off false, read true"},
	} {
		t.Run(name, func(t *testing.T) {
			var fails atomic.Bool
			var watching atomic.Pointer[watch.RaceFreeFakeWatcher]
			r := newRequests(nil)
			must.Succeed(t, r.Tracker().Create(informers.Secrets, encryptedBy("encryption-config", 1), "ns"))
			r.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				return fails.Load(), nil, c.err
			})
			r.PrependWatchReactor("secrets", func(clienttesting.Action) (bool, watch.Interface, error) {
				if fails.Load() {
					return true, nil, c.err
				}
				watching.Store(watch.NewRaceFreeFake())
				return true, watching.Load(), nil
			})
			r.step = func(i int) {
				if i == 1 {
					r.record("fails")
					fails.Store(true)
					watching.Load().Stop()
				}
			}
			r.run(t, oneTarget, oneTarget)
			if before := r.all[:slices.Index(r.all, "fails")]; !slices.Contains(before, "published off false, read true") {
				t.Errorf("before: %q", before)
			}
			must.Equal(t, "what is published last", r.last("published"), c.want)
		})
	}
}
