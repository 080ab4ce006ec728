package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// InternalServer is the URL of the API servers' load balancer, as OpenShift's api-int: the
// kubelets and kube-proxies of a cluster with several nodes use it.
const InternalServer = "https://" + balancerIP + ":" + balancerPort

// balancerIP is that of the bridge.
const (
	balancerIP   = "192.168.126.1"
	balancerPort = "6443"
)

// dialTimeout is for an API server whose node is cut off.
const dialTimeout = time.Second

// balance forwards each connection to a kube-apiserver that accepts it, one after the other.
func (c *Cluster) balance() (net.Listener, error) {
	listener, err := namespaces(c.bridge.PID()).listen(net.JoinHostPort(balancerIP, balancerPort))
	if err != nil {
		return nil, err
	}
	var turn atomic.Int64
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go c.forward(client, int(turn.Add(1)))
		}
	}()
	return listener, nil
}

func (c *Cluster) forward(client net.Conn, turn int) {
	defer client.Close()
	nodes := c.Nodes()
	for i := range nodes {
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
		server, err := namespaces(c.bridge.PID()).dial(ctx, "tcp", nodes[(turn+i)%len(nodes)].IP.String()+":6443")
		cancel()
		if err != nil {
			continue
		}
		Join(client, server)
		return
	}
}

// Join copies between two connections until one of them ends, which ends the other.
func Join(a, b net.Conn) {
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = errors.Join(a.Close(), b.Close())
		})
	}
	both.Wait()
}
