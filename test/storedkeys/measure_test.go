//go:build integration

package storedkeys

import (
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	kmstypes "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"

	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
)

var (
	measure = flag.Bool("measure", false, "measure; otherwise this is skipped")
	etcdctl = flag.String("etcdctl", "", "the absolute path of an etcdctl to compare with")
)

const (
	maxRatio  = 1.3      // of etcdctl's time
	maxMemory = 64 << 20 // in addition to the memory with an empty etcd
)

// resident returns the peak of a process's resident memory (VmHWM), and how long it ran. It does not use rusage, since
// the maximum in a child's rusage includes the memory of its parent.
func resident(t *testing.T, cmd *exec.Cmd) (peak int, elapsed time.Duration) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	must.Succeed(t, err)
	defer null.Close()
	cmd.Stdout, cmd.Stderr = null, os.Stderr
	began := time.Now()
	must.Succeed(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			must.Succeed(t, err)
			return peak, time.Since(began)
		case <-time.After(5 * time.Millisecond):
			peak = max(peak, highWater(cmd.Process.Pid))
		}
	}
}

var vmHWM = regexp.MustCompile(`VmHWM:\s*(\d+) kB`)

func highWater(pid int) int {
	text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if m := vmHWM.FindSubmatch(text); m != nil {
		kilobytes, _ := strconv.Atoi(string(m[1]))
		return kilobytes << 10
	}
	return 0
}

// value returns a stored value with this provider's prefix and size. An empty kekID means no KMS envelope.
func value(t *testing.T, provider, kekID string, size int) string {
	t.Helper()
	data := make([]byte, size)
	_, _ = rand.Read(data) // returns no error
	if kekID == "" {
		return provider + string(data)
	}
	object, err := proto.Marshal(&kmstypes.EncryptedObject{
		EncryptedData: data, KeyID: kekID, EncryptedDEKSource: data[:60],
		Annotations:            map[string][]byte{"version.example.com": []byte("1")},
		EncryptedDEKSourceType: kmstypes.EncryptedDEKSourceType_HKDF_SHA256_XNONCE_AES_GCM_SEED,
	})
	must.Succeed(t, err)
	return provider + string(object)
}

// fill writes n objects of a resource.
func fill(t *testing.T, client *clientv3.Client, resource string, n, size int, form func(i int) (provider, kekID string)) {
	t.Helper()
	each := max(1, min(100, 1<<20/size)) // within etcd's limits of a request
	for from := 0; from < n; from += each {
		var puts []clientv3.Op
		for i := from; i < min(from+each, n); i++ {
			provider, kekID := form(i)
			key := fmt.Sprintf("/registry/%s/namespace-%03d/object-%06d", resource, i%500, i)
			puts = append(puts, clientv3.OpPut(key, value(t, provider, kekID, size)))
		}
		_, err := client.Txn(t.Context()).Then(puts...).Commit()
		must.Succeed(t, err)
	}
}

func TestCostsOfReading(t *testing.T) {
	if !*measure {
		t.Skip("without -measure")
	}
	server := controlplane.StartEtcdForTest(t, nil, "--quota-backend-bytes=4000000000", "--max-request-bytes=4000000")
	client := connect(t, server.URL, clientv3.Config{MaxCallSendMsgSize: 8 << 20})
	endpoint := "--endpoints=" + server.URL
	ours := func(args ...string) *exec.Cmd { return command(t, append(args, endpoint)...) }

	fill(t, client, "pods", 1, 10, func(int) (string, string) { return "k8s\x00", "" })
	start := 0
	for range 10 { // the process ends so soon that a sample may miss its peak
		peak, _ := resident(t, ours())
		start = max(start, peak)
	}
	kms := func(i int) (string, string) { return "k8s:enc:kms:v2:kms-1:", fmt.Sprintf("key-%d", i%3) }
	fill(t, client, "secrets", 100_000, 1500, kms)
	fill(t, client, "configmaps", 10_000, 3000, kms)
	fill(t, client, "serviceaccounts", 2_000, 300, func(int) (string, string) { return "k8s:enc:aescbc:v1:key1:", "" })
	fill(t, client, "leases", 5_000, 400, func(int) (string, string) { return "k8s\x00", "" })

	filled := highWater(server.PID())
	_, stdout, _ := output(t, ours())
	t.Logf("\n%s", stdout)
	t.Logf("etcd's peak of memory: %d MB after filling, %d MB after stored-keys", filled>>20, highWater(server.PID())>>20)
	want := []row{
		{"configmaps", "kms:v2:kms-1", "key-0", 3334}, {"configmaps", "kms:v2:kms-1", "key-1", 3333}, {"configmaps", "kms:v2:kms-1", "key-2", 3333},
		{"secrets", "kms:v2:kms-1", "key-0", 33334}, {"secrets", "kms:v2:kms-1", "key-1", 33333}, {"secrets", "kms:v2:kms-1", "key-2", 33333},
		{"serviceaccounts", "aescbc:v1:key1", "", 2000},
	}
	if got := read(t, endpoint); !slices.Equal(got.Rows, want) {
		t.Errorf("got %+v", got.Rows)
	}
	compare(t, start, ours, endpoint)
	t.Logf("etcd's peak of memory: %d MB after etcdctl", highWater(server.PID())>>20)

	// Large values among small ones, in a resource that begins with small ones.
	fill(t, client, "secrets/zz", 300, 1<<20, kms)
	fill(t, client, "zz.example.com/foos", 300, 3<<20, kms)
	filled = highWater(server.PID())
	peak, elapsed := resident(t, ours())
	t.Logf("etcd's peak of memory: %d MB, and then %d MB", filled>>20, highWater(server.PID())>>20)
	t.Logf("with 300 values of 1 MiB and 300 of 3 MiB: %d MB more than at the start, %s", (peak-start)>>20, elapsed)
	if peak-start > maxMemory {
		t.Errorf("%d MB, want at most %d", (peak-start)>>20, maxMemory>>20)
	}
}

// compare runs both programs in turns, and compares their fastest runs.
func compare(t *testing.T, start int, ours func(...string) *exec.Cmd, endpoint string) {
	t.Helper()
	least, theirs, most := time.Hour, time.Hour, 0
	for range 5 {
		peak, elapsed := resident(t, ours())
		least, most = min(least, elapsed), max(most, peak)
		if *etcdctl != "" {
			_, elapsed := resident(t, exec.CommandContext(t.Context(), *etcdctl, endpoint, "get", "--prefix", "/registry/", "--command-timeout=1m"))
			theirs = min(theirs, elapsed)
		}
	}
	t.Logf("%s, %d MB at the start and %d MB more at most", least.Round(time.Millisecond), start>>20, (most-start)>>20)
	if most-start > maxMemory {
		t.Errorf("%d MB more, want at most %d", (most-start)>>20, maxMemory>>20)
	}
	if *etcdctl == "" {
		return
	}
	ratio := least.Seconds() / theirs.Seconds()
	t.Logf("etcdctl: %s; ratio %.2f", theirs.Round(time.Millisecond), ratio)
	if ratio > maxRatio {
		t.Errorf("%.2f times etcdctl, want at most %.1f", ratio, maxRatio)
	}
}
