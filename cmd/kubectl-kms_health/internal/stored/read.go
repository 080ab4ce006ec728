// Package stored finds which stored data still needs which key. It reads etcd by a getter, which cannot write. It
// decrypts nothing, needs no key, and its memory is bounded, however many objects there are and however large.
package stored

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// getter is the part of etcd's client that reads.
type getter interface {
	Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error)
}

// Sizes of pages, in values and in bytes. etcd holds a page several times in its memory, so a page is small
// until sizes are known: a Range of 500 values of 1 MiB took etcd from 32 MB to 3 GB. They are known
// for one resource at a time. etcd counts all keys up to the end of each Range, so small pages of many
// objects are slow. maxPage is the page of a `kubectl get`: it bounds the cost if large values follow small ones.
const (
	firstPage = 8
	maxPage   = 500
	pageBytes = 4 << 20
	// maxAnswer is the largest answer that is taken. A larger one is not read from the connection. etcd holds no value as
	// large, unless its --max-request-bytes is.
	maxAnswer = 8 << 20
)

// Request is what to read, and who reads it, as etcdctl's flags have it.
type Request struct {
	Endpoint string // of one member of etcd
	clientv3.SecureConfig
	Timeout   time.Duration                      // for each answer
	Prefixes  []string                           // none: those of DefaultPrefixes that exist
	Resources []string                           // as a Row names them; none: all
	Progress  func(resource string, objects int) // is called after each page; nil: nothing is
}

// Read connects to etcd, and reads what the request selects.
func Read(ctx context.Context, request Request) (*Inventory, error) {
	client, err := request.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	return read(ctx, client, request)
}

func read(ctx context.Context, etcd getter, request Request) (*Inventory, error) {
	r := &reader{Request: request, etcd: etcd, counts: map[Row]int{}}
	prefixes := r.Prefixes
	if len(prefixes) == 0 {
		prefixes = DefaultPrefixes
	}
	for _, prefix := range prefixes {
		if err := r.readPrefix(ctx, prefix); err != nil {
			return nil, err
		}
	}
	absent := slices.DeleteFunc(slices.Clone(prefixes), func(p string) bool { return slices.Contains(r.below, p) })
	if len(r.below) == 0 || len(r.Prefixes) > 0 && len(absent) > 0 {
		return nil, fmt.Errorf("etcd has no key below %s: set --etcd-prefix as kube-apiserver has it",
			strings.Join(absent, ", "))
	}
	for _, asked := range r.Resources {
		if !slices.Contains(r.found, asked) {
			return nil, fmt.Errorf("etcd has no object of %q; it has %s", asked, strings.Join(r.found, ", "))
		}
	}
	return r.inventory(), nil
}

type reader struct {
	Request
	etcd     getter
	revision int64    // of all pages; 0: the newest
	below    []string // the prefixes that exist
	found    []string
	objects  int
	counts   map[Row]int // their Objects are 0
	result   Inventory
}

// readPrefix finds one resource after the other, and reads those that are selected.
func (r *reader) readPrefix(ctx context.Context, name string) error {
	prefix := "/" + strings.Trim(name, "/") + "/"
	end := clientv3.GetPrefixRangeEnd(prefix)
	for from := prefix; from < end; {
		first, err := r.get(ctx, from, end, clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil || len(first.Kvs) == 0 {
			return err
		}
		if from == prefix {
			r.below = append(r.below, name)
		}
		// Begin at its folder, as kube-apiserver lists: kine (k3s) leaves out a key at which a Range begins.
		resource, begin, next := resourceOf(prefix, string(first.Kvs[0].Key))
		if !slices.Contains(r.found, resource) {
			r.found = append(r.found, resource)
		}
		if len(r.Resources) == 0 || slices.Contains(r.Resources, resource) {
			if err := r.readResource(ctx, resource, begin, next); err != nil {
				return err
			}
		}
		from = next
	}
	return nil
}

// readResource reads the keys from one to another, in pages.
func (r *reader) readResource(ctx context.Context, resource, from, end string) error {
	for limit := firstPage; ; {
		page, err := r.get(ctx, from, end, clientv3.WithLimit(int64(limit)))
		if status.Code(err) == codes.ResourceExhausted && limit > 1 {
			limit = 1
			continue
		}
		if err != nil {
			return err
		}
		largest := 1
		for _, kv := range page.Kvs {
			if err := r.add(resource, kv); err != nil {
				return err
			}
			largest, from = max(largest, len(kv.Value)), string(kv.Key)+"\x00"
		}
		r.objects += len(page.Kvs)
		if r.Progress != nil {
			r.Progress(resource, r.objects)
		}
		if !page.More {
			return nil
		}
		limit = min(2*limit, maxPage, max(1, pageBytes/largest))
	}
}

// get reads at the revision of the pages before, which stays until etcd compacts it.
func (r *reader) get(ctx context.Context, from, end string, more ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	for {
		bounded, cancel := context.WithTimeout(ctx, r.Timeout)
		options := append([]clientv3.OpOption{clientv3.WithRange(end), clientv3.WithRev(r.revision)}, more...)
		answer, err := r.etcd.Get(bounded, from, options...)
		cancel()
		switch {
		case r.revision != 0 && errors.Is(err, rpctypes.ErrCompacted):
			r.revision = 0 // the newest one; Revisions shows it
			continue
		case err != nil:
			return nil, fmt.Errorf("etcd at %s: %w\n%s", r.Endpoint, err, check)
		case r.revision == 0:
			r.revision = answer.Header.Revision
			r.result.Revisions = append(r.result.Revisions, r.revision)
		}
		return answer, nil
	}
}

const maxRows, maxKeys = 10000, 100 // bound the memory for unexpected values

func (r *reader) add(resource string, kv *mvccpb.KeyValue) error {
	provider, kekID, err := encryptionOf(kv.Value)
	if err != nil {
		r.result.UnreadableObjects++
		if len(r.result.Unreadable) < maxKeys {
			r.result.Unreadable = append(r.result.Unreadable, Unreadable{Key: string(kv.Key), Error: err.Error()})
		}
		return nil
	}
	r.counts[Row{Resource: resource, Provider: provider, KEKID: kekID}]++
	if len(r.counts) > maxRows {
		return fmt.Errorf("more than %d combinations of resource, provider and KEK ID: read less, by --resource", maxRows)
	}
	return nil
}

// connect returns a client.
func (r Request) connect(ctx context.Context) (*clientv3.Client, error) {
	if r.Endpoint == "" || strings.Contains(r.Endpoint, ",") { // of several, etcd's client would read some cluster's
		return nil, fmt.Errorf("--endpoints: is %q, must be one address: each member of a cluster has all objects",
			r.Endpoint)
	}
	r.InsecureTransport = true // without files: the endpoint's scheme decides
	config, err := clientv3.NewClientConfig(&clientv3.ConfigSpec{
		Endpoints: []string{r.Endpoint}, Secure: &r.SecureConfig, MaxCallRecvMsgSize: maxAnswer}, zap.NewNop())
	if err != nil {
		return nil, fmt.Errorf("--cacert, --cert and --key: %w", err)
	}
	config.Context, config.Logger = ctx, zap.NewNop()
	config.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast)}
	return clientv3.New(*config)
}

// failFast ends a request when a connection fails, with the cause. By its default the client waits until the
// timeout, and its error has no cause. The client still retries for about 3 seconds.
func failFast(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	return invoke(ctx, method, request, reply, conn, append(options, grpc.WaitForReady(false))...)
}

// check is what to check after each error of etcd.
const check = "Check --endpoints (https:// where etcd has TLS), --timeout, and that etcd has a leader\n" +
	"Check --cacert, which must have signed etcd's certificate, and --cert and --key, whose CA etcd must trust\n" +
	"Where etcd's authentication is on, the common name of --cert is a user who must be allowed to read --etcd-prefix"
