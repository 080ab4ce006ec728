//go:build integration

package stored

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kms-health/kms-health/pkg/contract"
	"github.com/kms-health/kms-health/test/harness/controlplane"
	"github.com/kms-health/kms-health/test/harness/must"
)

// etcd is a client of a real etcd. It records each page that is read, and calls before ahead of each page.
type etcd struct {
	*clientv3.Client
	pages  []page
	before func(page int)
	// exclusive leaves the first key out of a Range, as kine v0.14.0 to v0.14.3 does, the etcd of k3s.
	exclusive bool
}

type page struct {
	resource               string
	limit, values, largest int
	refused, keysOnly      bool
}

func connect(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	client, err := Request{Endpoint: endpoint}.connect(t.Context())
	must.Succeed(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func start(t *testing.T) *etcd {
	t.Helper()
	server := controlplane.StartEtcdForTest(t, nil)
	return &etcd{Client: connect(t, server.URL), before: func(int) {}}
}

func (e *etcd) put(t *testing.T, values map[string]string) {
	t.Helper()
	for key, value := range values {
		if _, err := e.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
}

func (e *etcd) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	op := clientv3.OpGet(key, opts...)
	p := page{limit: int(op.Limit()), keysOnly: op.IsKeysOnly()}
	p.resource, _, _ = resourceOf("/registry/", key)
	e.before(len(e.pages))
	if e.exclusive {
		key = strings.TrimRight(key, "\x00") + "\x00"
	}
	answer, err := e.Client.Get(ctx, key, opts...)
	if err != nil {
		p.refused = true
	} else {
		for _, kv := range answer.Kvs {
			p.values, p.largest = p.values+1, max(p.largest, len(kv.Value))
		}
	}
	e.pages = append(e.pages, p)
	return answer, err
}

func (e *etcd) read(t *testing.T, request Request) (*Inventory, error) {
	t.Helper()
	request.Timeout = 20 * time.Second
	return read(t.Context(), e, request)
}

func many(resource string, n, size int) map[string]string {
	values := map[string]string{}
	for i := range n {
		values[fmt.Sprintf("/registry/%s/ns/%06d", resource, i)] = strings.Repeat("x", size)
	}
	return values
}

func TestPagesAreSmallUntilTheSizesOfAResourceAreKnown(t *testing.T) {
	e := start(t)
	e.put(t, many("leases", 1000, 10))
	e.put(t, many("secrets", 40, 1<<20))
	inventory, err := e.read(t, Request{})
	if err != nil || !slices.Equal(inventory.Rows, []Row{{"(2 others)", Identity, "", 1040}}) {
		t.Fatalf("%+v, %v", inventory, err)
	}
	known := map[string]page{}
	for _, p := range e.pages {
		if p.keysOnly {
			continue
		}
		last, ok := known[p.resource]
		if !ok && p.limit != firstPage {
			t.Errorf("the first page of %s has %d values", p.resource, p.limit)
		}
		if ok && !last.refused && (p.limit > 2*last.limit || p.limit*last.largest > pageBytes) {
			t.Errorf("%+v follows %+v", p, last)
		}
		known[p.resource] = p
	}
	if e.pages[len(e.pages)-1].limit > 4 {
		t.Errorf("%+v", e.pages)
	}
}

func TestAnAnswerThatIsTooLargeIsReadInSmallPages(t *testing.T) {
	e := start(t)
	values := many("secrets", 100, 10)
	for i := range 20 {
		values[fmt.Sprintf("/registry/secrets/ns/%06d", 70+i)] = strings.Repeat("x", 1<<20)
	}
	e.put(t, values)
	inventory, err := e.read(t, Request{})
	if err != nil || !slices.Equal(inventory.Rows, []Row{{"(1 others)", Identity, "", 100}}) {
		t.Errorf("%+v, %v", inventory, err)
	}
	if !slices.ContainsFunc(e.pages, func(p page) bool { return p.refused && p.limit > 1 }) {
		t.Errorf("no page was refused, so this test shows nothing: %+v", e.pages)
	}
}

func TestCompactionMeanwhileIsReportedAndNothingIsCountedTwice(t *testing.T) {
	e := start(t)
	e.put(t, many("configmaps", 30, 10))
	e.put(t, many("secrets", 30, 10))
	e.before = func(n int) {
		if n != 3 {
			return
		}
		answer, err := e.Put(t.Context(), "/other", "x")
		if err == nil {
			_, err = e.Compact(t.Context(), answer.Header.Revision)
		}
		if err != nil {
			t.Error(err)
		}
	}
	inventory, err := e.read(t, Request{})
	if err != nil || !slices.Equal(inventory.Rows, []Row{{"(2 others)", Identity, "", 60}}) || len(inventory.Revisions) != 2 {
		t.Errorf("%+v, %v", inventory, err)
	}
}

func TestEveryValueIsARowOrIsNamed(t *testing.T) {
	e := start(t)
	e.put(t, map[string]string{
		"/registry/secrets/a/1": string(envelope(t, "key-1", []byte("x"))), "/registry/secrets/a/2": string(envelope(t, "key-2", []byte("x"))),
		"/registry/secrets/a/3": "k8s\x00", "/registry/cronjobs/a/1": string(envelope(t, "key\n4 ", []byte("x"))), "/registry/configmaps/a/1": "k8s:enc:kms:v1:old:x", "/registry/configmaps/a/2": "k8s:enc:kms:v2:kms-1:\xff",
		"/registry/example.com/foos/a/1": "k8s:enc:aescbc:v1:k:x", "/registry/pods/a/1": "k8s\x00", "/registry/minions/a": "k8s\x00",
		"/openshift.io/routes/a/1": "k8s:enc:secretbox:v1:k:x", "compact_rev_key": "1",
		"/of-another-cluster/secrets/a/1": string(envelope(t, "key-3", []byte("x"))),
	})
	want := []Row{
		{"configmaps", "kms:v1:old", "", 1}, {"cronjobs", "kms:v2:kms-1", "key\n4 ", 1}, {"foos.example.com", "aescbc:v1:k", "", 1}, {"routes", "secretbox:v1:k", "", 1},
		{"secrets", "identity", "", 1}, {"secrets", "kms:v2:kms-1", "key-1", 1}, {"secrets", "kms:v2:kms-1", "key-2", 1}, {"(2 others)", "identity", "", 2},
	}
	got, err := e.read(t, Request{})
	if err != nil || !slices.Equal(got.Rows, want) || got.Verdict.ExitCode() != 2 ||
		got.UnreadableObjects != 1 || got.Unreadable[0].Key != "/registry/configmaps/a/2" {
		t.Errorf("%+v, %v", got, err)
	}
	e.exclusive = true
	if again, err := e.read(t, Request{}); err != nil || !slices.Equal(again.Rows, want) {
		t.Errorf("of kine: %+v, %v", again, err)
	}
	for name, tt := range map[string]struct {
		request Request
		kekID   string
		want    string
		code    int
	}{
		"needed, by its hash":             {Request{}, "sha256:" + contract.FileHash([]byte("key-1")), `KEK ID "sha256:` + contract.FileHash([]byte("key-1")) + `" is still needed, by secrets (objects: 1)`, 1},
		"needed, as text shows it":        {Request{}, "key 4", `KEK ID "key 4" is still needed, by cronjobs (objects: 1)`, 1},
		"needed":                          {Request{}, "key-1", `KEK ID "key-1" is still needed, by secrets (objects: 1)`, 1},
		"not known, for what is not read": {Request{}, "key-3", `Not known: whether an object below /registry, /openshift.io needs KEK ID "key-3" (objects: 2); in use are ` + "key\n4 , key-1, key-2", 2},
		"not needed":                      {Request{Resources: []string{"secrets"}}, "key-3", `No object of secrets below /registry, /openshift.io needs KEK ID "key-3"; in use are key-1, key-2`, 0},
		"without a KEK ID":                {Request{Resources: []string{"pods", "nodes"}}, "", "Encrypted: 0 of 2 objects, KEK IDs: 0", 0},
		"not needed below one prefix":     {Request{Prefixes: []string{"/openshift.io"}}, "key-1", `No object below /openshift.io needs KEK ID "key-1"; in use are none`, 0},
		"of one prefix":                   {Request{Prefixes: []string{"openshift.io/"}}, "", "Encrypted: 1 of 1 objects, KEK IDs: 0", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := e.read(t, tt.request)
			must.Succeed(t, err)
			if tt.kekID != "" {
				got.Select(tt.kekID)
			}
			if got.Summary != tt.want || got.Verdict.ExitCode() != tt.code {
				t.Errorf("got %q, %d; want %q, %d", got.Summary, got.Verdict.ExitCode(), tt.want, tt.code)
			}
		})
	}
	for name, tt := range map[string]struct {
		request Request
		want    string
	}{
		"unknown resource": {Request{Resources: []string{"secretz"}}, `no object of "secretz"; it has configmaps, cronjobs, foos.example.com, nodes, pods, secrets, routes`},
		"unknown prefix":   {Request{Prefixes: []string{"/other"}}, "no key below /other: set --etcd-prefix"},
		"one of two":       {Request{Prefixes: []string{"/registry", "/other"}}, "no key below /other: set --etcd-prefix"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := e.read(t, tt.request); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// An administrator knows a former key by the name that the KMS shows. The KEK ID can be longer: AWS has the key's ARN,
// Google the name of the key's version with a suffix from the plugin's configuration.
func TestAnIDThatIsAPartOfOneInUseIsNotCalledUnused(t *testing.T) {
	const arn, version = "arn:aws:kms:eu-west-1:111:key/1234-abcd", "projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1"
	for name, tt := range map[string]struct {
		stored, named string
		want          int
	}{
		"the ID of an ARN":              {arn, "1234-abcd", 2},
		"an ARN where the ID is stored": {"1234-abcd", arn, 2},
		"a key of its version":          {version, strings.TrimSuffix(version, "/cryptoKeyVersions/1"), 2},
		"the name of a version's key":   {version, "k", 2},
		"the name of a key of Azure":    {"https://v.vault.azure.net/keys/etcd/0123abcd", "etcd", 2},
		"a version without the suffix":  {version + ":a", version, 2},
		"a version of a key":            {strings.TrimSuffix(version, "/cryptoKeyVersions/1"), version, 2},
		"the same":                      {arn, arn, 1},
		"another version":               {version + "2", version, 0},
		"another key of the account":    {arn, "arn:aws:kms:eu-west-1:111:key/5678", 0},
		"a shorter name":                {"key-12", "key-1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := &reader{counts: map[Row]int{{Resource: "secrets", Provider: "kms:v2:kms-1", KEKID: tt.stored}: 3}}
			got := r.inventory()
			got.Select(tt.named)
			if got.Verdict.ExitCode() != tt.want || (tt.want == 2) != strings.HasPrefix(got.Summary, "Not known: whether an object") ||
				tt.want != 0 && (len(got.Rows) != 1 || got.Rows[0].Objects != 3) {
				t.Errorf("%d, %q, %+v", got.Verdict.ExitCode(), got.Summary, got.Rows)
			}
		})
	}
}

func TestRowsAreBounded(t *testing.T) {
	r := &reader{counts: map[Row]int{}}
	for i := range maxRows {
		r.counts[Row{KEKID: fmt.Sprint(i)}] = 1
	}
	kv := &mvccpb.KeyValue{Value: envelope(t, "one more", []byte("x"))}
	if err := r.add("secrets", kv); err == nil || !strings.Contains(err.Error(), "--resource") {
		t.Errorf("got %v", err)
	}
}
