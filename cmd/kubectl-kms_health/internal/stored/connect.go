package stored

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Etcd is where etcd is, and who reads it, as etcdctl's flags have it.
type Etcd struct {
	Endpoints []string
	clientv3.SecureConfig
	Timeout time.Duration // for each answer
}

// connect returns a client. Of several endpoints it uses those that answer now.
func (e Etcd) connect(ctx context.Context) (*clientv3.Client, error) {
	if len(e.Endpoints) == 0 {
		return nil, errors.New("--endpoints: is empty, must be etcd's addresses")
	}
	e.InsecureTransport = true // without files: the endpoints' schemes decide
	config, err := clientv3.NewClientConfig(&clientv3.ConfigSpec{
		Endpoints: e.Endpoints, Secure: &e.SecureConfig, MaxCallRecvMsgSize: maxAnswer}, zap.NewNop())
	if err != nil {
		return nil, fmt.Errorf("--cacert, --cert and --key: %w", err)
	}
	config.Context, config.Logger = ctx, zap.NewNop()
	config.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(failFast)}
	client, err := clientv3.New(*config)
	if err == nil && len(e.Endpoints) > 1 {
		if err = e.choose(ctx, client); err != nil {
			_ = client.Close()
		}
	}
	return client, err
}

// errOther is the error for endpoints of several clusters: the client would read them in turns, or one alone.
var errOther = errors.New("the endpoints are of more than one etcd cluster, as by --etcd-servers-overrides of " +
	"kube-apiserver: read one cluster after the other")

// choose makes a client use only the endpoints that answer. Those must be of one cluster.
func (e Etcd) choose(ctx context.Context, client *clientv3.Client) error {
	var answering []string
	var cluster uint64
	var failed error
	for _, endpoint := range e.Endpoints {
		bounded, cancel := context.WithTimeout(ctx, e.Timeout)
		answer, err := client.Status(bounded, endpoint)
		cancel()
		switch {
		case err != nil:
			failed = e.explain(err)
			continue
		case len(answering) > 0 && answer.Header.ClusterId != cluster:
			return errOther
		}
		answering, cluster = append(answering, endpoint), answer.Header.ClusterId
	}
	if len(answering) == 0 {
		return failed
	}
	client.SetEndpoints(answering...)
	return nil
}

// failFast ends a request when a connection fails, with the cause. By its default the client waits until the
// timeout, and its error has no cause. The client still retries for about 3 seconds.
func failFast(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	return invoke(ctx, method, request, reply, conn, append(options, grpc.WaitForReady(false))...)
}

// explain adds to an error of reading where it was, and what to check.
func (e Etcd) explain(err error) error {
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
