package stored

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

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
