//go:build integration

package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/pkg/reporter/publish"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/kmsplugin"
)

// notText are the characters that docs/reference/contract.md replaces by a space in a detail.
func notText(r rune) bool {
	return r < 0x20 || r >= 0x7F && r <= 0x9F || r == 0x061C || r == 0x200E || r == 0x200F || r >= 0x2028 && r <= 0x202E ||
		r >= 0x2066 && r <= 0x2069 || r == 0xFEFF || r >= 0xFDD0 && r <= 0xFDEF || r&0xFFFE == 0xFFFE
}

// asDetail is a text as a detail of the contract.
func asDetail(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if notText(r) {
			return ' '
		}
		return r
	}, text))
}

// texts returns every character: those that are no text, quotes and backslashes each
// alone, and all in texts of at most 1,000 bytes, which no bound of the contract cuts.
func texts() (list []string, runes int) {
	var b strings.Builder
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		runes++
		if notText(r) || r == '"' || r == '\\' || r == '\'' || r == '\u00A0' || r == utf8.RuneError {
			list = append(list, string(r))
		}
		if b.Len()+utf8.RuneLen(r) > 1000 {
			list = append(list, b.String())
			b.Reset()
		}
		b.WriteRune(r)
	}
	return append(list, b.String()), runes
}

// plugins is how many texts fit in one message twice, as key id and as detail.
const plugins = 13

func TestEveryCharacterOfAPluginIsStoredAccordingToTheContract(t *testing.T) {
	list, runes := texts()
	batches := slices.Collect(slices.Chunk(list, plugins))
	work := make(chan []string, len(batches))
	for _, batch := range batches {
		work <- batch
	}
	close(work)
	resources := []string{controlplane.KubeAPIServers, controlplane.OpenShiftAPIServers, controlplane.Authentications}
	r := newReporter(t, resources...)
	r.token()
	var all sync.WaitGroup
	for _, resource := range resources {
		w := newWriter(r, resource)
		all.Go(func() {
			for batch := range work {
				if !w.check(batch) {
					return
				}
			}
		})
	}
	began := time.Now()
	all.Wait()
	t.Logf("%d characters in %d texts, each a key id and a detail, %d writes in %s", runes, len(list), len(batches), time.Since(began).Round(time.Millisecond))
	if want := 0x110000 - 0x800; runes != want {
		t.Errorf("%d characters, there are %d", runes, want)
	}
}

// writer writes to a resource, and reads back what is there.
type writer struct {
	t         *testing.T
	resource  string
	node      string
	object    dynamic.ResourceInterface
	publisher *publish.Publisher
	checked   time.Time
}

func newWriter(r *reporter, resource string) *writer {
	w := &writer{t: r.t, resource: resource, node: r.node, object: operatorResource(r.t, resource), checked: time.Date(2026, 5, 8, 0, 0, 0, 0, time.UTC)}
	config := publish.Config{To: contract.ResourceOf(resource), Node: w.node, UserAgent: "kms-health-reporter/test", Since: time.Now}
	config.Kubeconfig, config.WriteTimeout.Duration = filepath.Join(r.credentialDir(), controlplane.KubeconfigFile), waitLimit
	w.publisher = publish.New(config, publish.NewMetrics(prometheus.NewRegistry()))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	r.t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() { w.publisher.Run(ctx) })
	return w
}

// check has texts written as key ids and as details, and wants them stored.
func (w *writer) check(batch []string) bool {
	w.checked = w.checked.Add(time.Second)
	var observed, want []contract.Entry
	for i, text := range batch {
		e := contract.Entry{KeyID: fmt.Sprint(i), KEKID: text, Status: contract.Unhealthy, LastChecked: w.checked, Interval: time.Second, Detail: "a" + text + "z"}
		observed = append(observed, e)
		e.Detail = asDetail(e.Detail)
		want = append(want, e)
	}
	w.publisher.Offer(observed)
	for deadline := time.Now().Add(waitLimit / 2); ; time.Sleep(5 * time.Millisecond) {
		u, err := w.object.Get(w.t.Context(), controlplane.ClusterObject, metav1.GetOptions{})
		if err != nil {
			w.t.Error(err)
			return false
		}
		got := entriesIn(u, w.node)
		if slices.Equal(got, want) {
			return true
		}
		if time.Now().After(deadline) {
			w.t.Errorf("%s: texts from %+q: %s", w.resource, batch[0][:min(len(batch[0]), 8)], cmp.Diff(want, got))
			return false
		}
	}
}

func TestKeyIDAndErrorsOfHostileCharactersAreReported(t *testing.T) {
	const resource = controlplane.KubeAPIServers
	var hostile strings.Builder
	for r := rune(1); r <= 0xFFFF; r++ {
		if utf8.ValidRune(r) && notText(r) {
			hostile.WriteRune(r)
		}
	}
	r := newReporter(t, resource)
	r.token()
	one := r.plugin("1", kmsplugin.Fault{Name: kmsplugin.FaultKeyID, Args: []string{hostile.String()}})
	r.configure(resource, "1:Write")
	r.start()
	stored := func(status, kekID string) func() bool {
		return func() bool {
			e := entries(t, resource, r.node)
			return len(e) == 1 && string(e[0].Status) == status && e[0].KEKID == kekID && !strings.ContainsFunc(e[0].Detail, notText)
		}
	}
	eventually(t, "the key id is stored as it is", stored("healthy", hostile.String()))
	for _, tt := range []struct {
		fault         kmsplugin.Fault
		status, kekID string
	}{
		{kmsplugin.Fault{Name: kmsplugin.FaultUnhealthy, Args: []string{hostile.String()}}, "unhealthy", hostile.String()},
		{kmsplugin.Fault{Name: kmsplugin.FaultRPCError, Args: []string{"Internal", hostile.String()}}, "error", ""},
	} {
		if err := one.SetFault(tt.fault); err != nil {
			t.Fatal(err)
		}
		eventually(t, tt.fault.Name+" is stored", stored(tt.status, tt.kekID))
	}
}
