package cluster

import (
	"bufio"
	"encoding/json"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Event is what the tests need of an entry of kube-apiserver's audit log.
type Event struct {
	Verb       string
	RequestURI string
	User       struct {
		Username string
		Extra    map[string][]string
	}
	ObjectRef *struct {
		Resource, Namespace, Name, Subresource string
	}
	ResponseStatus           *struct{ Code int }
	RequestReceivedTimestamp metav1.MicroTime
}

// Audit returns the requests that the node's kube-apiserver received since a time.
func (n *Node) Audit(since time.Time) ([]Event, error) {
	f, err := os.Open(n.Path("/var/log/kube-apiserver/audit.log"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var events []Event
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e Event
		// The last line may be half written.
		if err := json.Unmarshal(lines.Bytes(), &e); err == nil && !e.RequestReceivedTimestamp.Time.Before(since) {
			events = append(events, e)
		}
	}
	return events, lines.Err()
}
