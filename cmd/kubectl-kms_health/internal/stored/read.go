// Package stored finds which stored data still needs which key. It reads etcd, and cannot write: all that it
// calls is Getter. It decrypts nothing, and needs no key.
package stored

import (
	"context"
	"fmt"
	"strings"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Getter is what is used of etcd's client.
type Getter interface {
	Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error)
}

// Sizes of pages, in values and in bytes. etcd holds a page several times in its memory, so a page is small
// until sizes are known: a Range of 500 values of 1 MiB took etcd from 32 MB to 3 GB. They are known
// for one resource at a time. etcd counts all keys up to the end of each Range, so small pages of many
// objects are slow. maxPage is the Range of a `kubectl get`, if large values follow many small ones.
const (
	firstPage = 8
	maxPage   = 500
	pageBytes = 4 << 20
)

// Request is what to read.
type Request struct {
	Prefixes []string      // none: those of DefaultPrefixes that exist
	Timeout  time.Duration // for each answer
}

// Read reads all objects, each page as it is then. An object that is written meanwhile, and not counted, has the key
// that is written with.
func Read(ctx context.Context, etcd Getter, request Request) (*Inventory, error) {
	r := &reader{etcd: etcd, timeout: request.Timeout, counts: map[Row]int{}}
	prefixes := request.Prefixes
	if len(prefixes) == 0 {
		prefixes = DefaultPrefixes
	}
	found := false
	for _, prefix := range prefixes {
		has, err := r.readPrefix(ctx, "/"+strings.Trim(prefix, "/")+"/")
		if err != nil {
			return nil, err
		}
		found = found || has
	}
	if !found {
		return nil, fmt.Errorf("etcd has no key below %s: set --etcd-prefix as kube-apiserver has it",
			strings.Join(prefixes, ", "))
	}
	return r.inventory(), nil
}

type reader struct {
	etcd    Getter
	timeout time.Duration
	counts  map[Row]int // their Objects are 0
	result  Inventory
}

// readPrefix finds and reads one resource after the other; false: there is none.
func (r *reader) readPrefix(ctx context.Context, prefix string) (found bool, err error) {
	end := clientv3.GetPrefixRangeEnd(prefix)
	for from := prefix; from < end; {
		first, err := r.get(ctx, from, end, clientv3.WithLimit(1), clientv3.WithKeysOnly())
		if err != nil || len(first.Kvs) == 0 {
			return found, err
		}
		found = true
		key := string(first.Kvs[0].Key)
		resource, next := resourceOf(prefix, key)
		if err := r.readResource(ctx, resource, key, next); err != nil {
			return found, err
		}
		from = next
	}
	return found, nil
}

// readResource reads the keys from one to another, in pages.
func (r *reader) readResource(ctx context.Context, resource, from, end string) error {
	for limit := firstPage; ; {
		page, err := r.get(ctx, from, end, clientv3.WithLimit(int64(limit)))
		if err != nil {
			return err
		}
		largest := 1
		for _, kv := range page.Kvs {
			r.add(resource, kv)
			largest, from = max(largest, len(kv.Value)), string(kv.Key)+"\x00"
		}
		if !page.More {
			return nil
		}
		limit = min(2*limit, maxPage, max(1, pageBytes/largest))
	}
}

func (r *reader) get(ctx context.Context, from, end string, more ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	return r.etcd.Get(ctx, from, append(more, clientv3.WithRange(end))...)
}

func (r *reader) add(resource string, kv *mvccpb.KeyValue) {
	e, err := encryptionOf(kv.Value)
	if err == nil {
		r.counts[Row{Resource: resource, Provider: e.provider, KEKID: e.kekID}]++
		return
	}
	r.result.UnreadableObjects++
	if len(r.result.Unreadable) < maxUnreadable {
		r.result.Unreadable = append(r.result.Unreadable, Unreadable{Key: string(kv.Key), Error: err.Error()})
	}
}
