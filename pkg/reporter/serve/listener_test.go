package serve

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kms-health/kms-health/pkg/config/v1alpha1"
)

// descriptor finds the listening socket of an address among this process's.
func descriptor(t *testing.T, address string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if on, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN); err != nil || on == 0 {
			continue
		}
		if at, err := syscall.Getsockname(fd); err == nil {
			if v4, ok := at.(*syscall.SockaddrInet4); ok && strconv.Itoa(v4.Port) == port {
				return fd
			}
		}
	}
	t.Fatalf("no socket listens on %s", address)
	return 0
}

func TestAListenerThatFailsIsReplaced(t *testing.T) {
	t.Parallel()                                  // it waits
	free, err := net.Listen("tcp", "127.0.0.2:0") // an address whose ports no other connection uses
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	s := run(t, &v1alpha1.Serving{Address: address})
	s.await(t)
	restarts := func() string {
		_, text := body(t, "http://"+address+"/metrics", nil)
		for line := range strings.Lines(text) {
			if n, ok := strings.CutPrefix(line, "kms_health_reporter_serving_restarts_total "); ok {
				return strings.TrimSpace(n)
			}
		}
		return ""
	}
	for i := range 2 {
		if got := restarts(); got != fmt.Sprint(i) {
			t.Errorf("%s restarts are counted, want %d", got, i)
		}
		// accept(2) then fails with EINVAL, permanently.
		if err := syscall.Shutdown(descriptor(t, address), syscall.SHUT_RDWR); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the address is served again", func() bool {
			r, err := get(t, "http://"+address+"/readyz", nil)
			if err != nil {
				time.Sleep(20 * time.Millisecond) // refused at once
			}
			return err == nil && r.StatusCode == http.StatusOK
		})
	}
	if got := restarts(); got != "2" {
		t.Errorf("%s restarts are counted, want 2", got)
	}
	if n := logged(address, "Cannot accept connections; opening the address again"); n != 2 {
		t.Errorf("logged %d times, want 2", n)
	}
}
