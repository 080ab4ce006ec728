//go:build integration

package encrypted

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/must"
	"github.com/kms-health/kms-health/test/operator/fixture"
)

var (
	rotations = flag.Int("rotations", 0, "rotations of the plugin's key; each takes about 4 minutes")
	interval  = flag.String("interval", "5s", "the reporters' interval during rotations")
)

// stored is a Secret in etcd: when its creation was requested, and the KEK ID that encrypted it.
type stored struct {
	requested time.Time
	kekID     string
}

// writer creates a Secret every 200 ms, and reads its envelope from etcd.
func writer(ctx context.Context, etcd *clientv3.Client, all chan<- stored, problems chan<- error) {
	for i := 0; ctx.Err() == nil; i++ {
		s := stored{requested: time.Now()}
		name := fmt.Sprintf("written-%d", i)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"x": "y"}}
		if _, err := fixture.Kube.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			problems <- err
			return
		}
		got, err := etcd.Get(ctx, "/registry/secrets/default/"+name)
		if err != nil || len(got.Kvs) != 1 {
			problems <- fmt.Errorf("read %s in etcd: %w", name, err)
			return
		}
		if s.kekID, err = apiservers.StoredKEKID(got.Kvs[0].Value, "plugin"); err != nil {
			problems <- err
			return
		}
		all <- s
		time.Sleep(200 * time.Millisecond)
	}
}

// A migration that begins when the new key is agreed on must leave nothing under the former key. etcd shows the key
// with which kube-apiserver writes.
func TestNothingIsWrittenUnderTheFormerKeyOnceTheNewOneIsAgreedOn(t *testing.T) {
	if *rotations == 0 {
		t.Skip("it takes 4 minutes for each of -rotations")
	}
	op := fixture.NewOperator(t)
	fixture.StartReporting(t, op, fixture.Plugin, *interval)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{fixture.Cluster.EtcdURL()}})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = etcd.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all, problems := make(chan stored, 1000), make(chan error, 1)
	go writer(ctx, etcd, all, problems)
	fixture.AwaitAgreed(t, fixture.Plugin.KeyID())
	var took []time.Duration
	for i := range *rotations {
		rotated := time.Now()
		_, err := fixture.Plugin.Rotate()
		must.Succeed(t, err)
		kekID := fixture.Plugin.KeyID()
		fixture.AwaitAgreed(t, kekID)
		agreed := time.Now()
		took = append(took, agreed.Sub(rotated).Round(100*time.Millisecond))
		var last time.Time // the last write under the former key
		objects, wrong := 0, 0
		for until := time.After(30 * time.Second); until != nil; {
			select {
			case s := <-all:
				objects++
				if s.kekID != kekID && s.requested.After(last) {
					last = s.requested
				}
				if s.kekID != kekID && s.requested.After(agreed) {
					wrong++
				}
			case err := <-problems:
				t.Fatal(err)
			case <-until:
				until = nil
			}
		}
		t.Logf("rotation %d: agreed after %s, the last object under the former key %s after the rotation, %d objects", i+1,
			took[i], last.Sub(rotated).Round(100*time.Millisecond), objects)
		if wrong > 0 {
			t.Errorf("rotation %d: %d objects are under another key, though %s was agreed on before", i+1, wrong, kekID)
		}
	}
	slices.Sort(took)
	t.Logf("interval %s, %d rotations: from the rotation to True: median %s, worst %s", *interval, len(took),
		took[len(took)/2], took[len(took)-1])
}
