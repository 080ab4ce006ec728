package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/kms-health/kms-health/test/harness/apiservers"
	"github.com/kms-health/kms-health/test/harness/controlplane"
)

const writingSettle = 5 * time.Second

// TestWrites has three reporters write every second, and measures what etcd stores of it.
func TestWrites(t *testing.T) {
	f := newFixture(t)
	f.startCluster()
	admin, err := dynamic.NewForConfig(f.cluster.RESTConfig())
	f.must(err)
	f.fill(admin, apiservers.Kube)
	reporter := f.program("kms-health-reporter")
	var reporting []*node
	for _, name := range nodeNames {
		reporting = append(reporting, f.newNode(name, reporter, 2))
	}
	bare := f.stored()
	f.progress("3 reporters write every second, for %s", f.writing)
	for _, n := range reporting {
		n.configureAll(f.access())
		n.run()
	}
	f.pause(writingSettle)
	before, requestsBefore := f.stored(), requests(reporting)
	f.pause(f.writing)
	after, made := f.stored(), requests(reporting)-requestsBefore

	changes := float64(after.version - before.version)
	if changes < f.writing.Seconds()*float64(len(reporting))*0.8 {
		t.Fatalf("the object was written %.0f times in %s: this would not measure the work", changes, f.writing)
	}
	perRequest := changes / made
	f.add(row{
		what:     fmt.Sprintf("writes, %.0f requests, %.0f changes of the object: changes for each request", made, changes),
		measured: fmt.Sprintf("%.2f", perRequest), bound: fmt.Sprintf("%.2f", maxChanges), verdict: atMost(perRequest, maxChanges),
	})
	share := (after.size - bare.size) / len(reporting)
	f.add(row{
		what: "  bytes of the object, of each node's report", measured: fmt.Sprint(after.size), value: fmt.Sprintf("%d bytes", share),
		bound: fmt.Sprintf("%d bytes", maxReportSize), verdict: atMost(share, maxReportSize),
	})
}

// requests are the writes that reporters have made, also those that failed.
func requests(reporting []*node) (made float64) {
	for _, n := range reporting {
		metrics := newScraper(n, n.serving, nil, "")
		for series, count := range metrics.scrape(n) {
			if strings.HasPrefix(series, "kms_health_reporter_writes_total{") {
				made += count
			}
		}
		metrics.client.CloseIdleConnections()
	}
	return made
}

// stored is what etcd has of the object that is written: how often it was, and its bytes.
type stored struct {
	version int64
	size    int
}

// stored asks etcd past the API server, by its gRPC gateway.
func (f *fixture) stored() stored {
	f.Helper()
	key := "/registry/" + controlplane.OperatorGroup + "/" + apiservers.Kube.Resource + "/" + controlplane.ClusterObject
	question, err := json.Marshal(map[string][]byte{"key": []byte(key)})
	f.must(err)
	response, err := http.Post(f.etcdURL()+"/v3/kv/range", "application/json", bytes.NewReader(question))
	f.must(err)
	defer response.Body.Close()
	var answer struct {
		KVs []struct {
			Version int64  `json:"version,string"`
			Value   []byte `json:"value"`
		} `json:"kvs"`
	}
	f.must(json.NewDecoder(response.Body).Decode(&answer))
	if len(answer.KVs) != 1 {
		f.Fatalf("etcd has no %s: %s", key, response.Status)
	}
	return stored{answer.KVs[0].Version, len(answer.KVs[0].Value)}
}

// etcdURL is where the cluster's etcd listens, by its arguments.
func (f *fixture) etcdURL() string {
	f.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", f.cluster.EtcdPID()))
	f.must(err)
	for arg := range strings.SplitSeq(string(line), "\x00") {
		if url, ok := strings.CutPrefix(arg, "--listen-client-urls="); ok {
			return url
		}
	}
	f.Fatal("the arguments of etcd have no address")
	return ""
}
