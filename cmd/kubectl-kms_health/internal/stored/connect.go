package stored

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Etcd is where etcd is, and who reads it, as etcdctl's flags have it.
type Etcd struct {
	Endpoints         []string
	CACert, Cert, Key string // paths of PEM files
}

// Connect returns a client, which connects at its first request.
func (e Etcd) Connect(ctx context.Context) (*clientv3.Client, error) {
	if len(e.Endpoints) == 0 {
		return nil, errors.New("--endpoints: is empty, must be etcd's addresses")
	}
	security, err := e.tls()
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: e.Endpoints, TLS: security, Logger: zap.NewNop(), MaxCallRecvMsgSize: maxAnswer,
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast)},
	})
}

// errOther is the error for endpoints of several clusters: the objects of all but one would be missing.
var errOther = errors.New("the endpoints are of more than one etcd cluster, as by --etcd-servers-overrides of " +
	"kube-apiserver: read one cluster after the other")

// OneCluster returns an error if a client's endpoints are of several clusters: the client would read them in turns, or
// one alone. It ignores an endpoint that does not answer; Read checks that endpoint if it answers later.
func OneCluster(ctx context.Context, client *clientv3.Client, timeout time.Duration) error {
	var one cluster
	for _, endpoint := range client.Endpoints() {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		answer, err := client.Status(bounded, endpoint)
		cancel()
		if err == nil {
			err = one.check(answer.Header)
		}
		if errors.Is(err, errOther) {
			return err
		}
	}
	return nil
}

// cluster has the ID of the etcd cluster that answers come from; nil before the first.
type cluster struct{ id *uint64 }

func (c *cluster) check(answer *etcdserverpb.ResponseHeader) error {
	if c.id != nil && *c.id != answer.ClusterId {
		return errOther
	}
	c.id = &answer.ClusterId
	return nil
}

// failFast ends a request when a connection fails, with the cause. By its default the client waits until the
// timeout, and its error has no cause. The client still retries for about 3 seconds.
func failFast(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	return invoke(ctx, method, request, reply, conn, append(options, grpc.WaitForReady(false))...)
}

// tls is nil without files: the endpoints' schemes decide then.
func (e Etcd) tls() (*tls.Config, error) {
	switch {
	case e.CACert == "" && e.Cert == "" && e.Key == "":
		return nil, nil
	case (e.Cert == "") != (e.Key == ""):
		return nil, errors.New("--cert and --key: set both, a client certificate and its key")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.CACert != "" {
		pem, err := os.ReadFile(e.CACert)
		if err != nil {
			return nil, fmt.Errorf("--cacert: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--cacert: %s has no certificate in PEM", e.CACert)
		}
	}
	if e.Cert != "" {
		pair, err := tls.LoadX509KeyPair(e.Cert, e.Key)
		if err != nil {
			return nil, fmt.Errorf("--cert and --key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Explain adds to an error of Read where it was, and what to check.
func (e Etcd) Explain(err error) error {
	code := status.Code(err)
	if known, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		code = known.Code()
	}
	where := "etcd at " + strings.Join(e.Endpoints, ", ")
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s did not answer in time\nCheck --endpoints, and that etcd has a leader; or set a longer "+
			"--timeout", where)
	case code == codes.Unavailable:
		return fmt.Errorf("%s: %s\nCheck --endpoints (https:// where etcd has TLS), --cacert, which must have signed "+
			"etcd's certificate, and --cert and --key, whose CA etcd must trust", where, status.Convert(err).Message())
	case code == codes.PermissionDenied || code == codes.Unauthenticated || code == codes.InvalidArgument:
		return fmt.Errorf("%s: %w\nIts authentication is on: --cert needs the common name of an etcd user who may read "+
			"the prefixes; a user who may read kube-apiserver's prefix alone also needs --etcd-prefix", where, err)
	}
	return err
}
