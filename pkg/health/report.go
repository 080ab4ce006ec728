package health

import (
	"cmp"
	"fmt"
	"time"
)

// UnknownRemoteKeyID is what earlier reporters wrote into a typed report for a key id
// that was never known. It is no longer written, since nodes that all write it would
// agree for a reader that compares key ids as strings. Read, it counts as no key id.
const UnknownRemoteKeyID = "unknown"

// Report is an Entry in its typed form: an element of healthReports in
// operator.openshift.io/v1, behind the KMSEncryption feature gate. It is spelled
// out here rather than imported, since that package brings the whole of the
// core API with it.
type Report struct {
	NodeName        string `json:"nodeName"`
	KeyID           string `json:"keyID"`
	Status          string `json:"status"`
	LastCheckedTime string `json:"lastCheckedTime"`
	RemoteKeyID     string `json:"remoteKeyID"`
	Detail          string `json:"detail,omitempty"`
}

var typedStatus = map[Status]string{Healthy: "Healthy", Unhealthy: "Unhealthy", Error: "Error"}

// NewReport converts an entry of a node to the typed form. lastKEKID is the last one known
// of the plugin, sent when the entry has none; empty when none is known. Without either
// there is no report, and ok is false: the resource's schema requires a key id of 1 to
// 1,024 characters, and rejects the whole write without it.
func NewReport(node string, e Entry, lastKEKID string) (r Report, ok bool) {
	remote := cmp.Or(e.KEKID, lastKEKID)
	if remote == "" {
		return Report{}, false
	}
	return Report{
		NodeName:        node,
		KeyID:           e.KeyID,
		Status:          typedStatus[e.Status],
		LastCheckedTime: e.LastChecked.UTC().Format(time.RFC3339),
		RemoteKeyID:     remote,
		Detail:          CleanDetail(e.Detail),
	}, true
}

// Entry returns the report as an entry. The typed form has no interval, so its
// Interval is zero: readers assume DefaultInterval. A
// RemoteKeyID of UnknownRemoteKeyID becomes no KEKID.
func (r Report) Entry() (Entry, error) {
	checked, err := time.Parse(time.RFC3339, r.LastCheckedTime)
	if err != nil {
		return Entry{}, fmt.Errorf("lastCheckedTime: %q is not an RFC 3339 time", r.LastCheckedTime)
	}
	for status, typed := range typedStatus {
		if typed != r.Status {
			continue
		}
		e := Entry{KeyID: r.KeyID, KEKID: r.RemoteKeyID, Status: status, LastChecked: checked.UTC(), Detail: r.Detail}
		if e.KEKID == UnknownRemoteKeyID {
			e.KEKID = ""
		}
		return e, nil
	}
	return Entry{}, fmt.Errorf("status: %q is none of Healthy, Unhealthy, Error", r.Status)
}
