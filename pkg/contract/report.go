package contract

import (
	"fmt"
	"time"
)

// UnknownRemoteKeyID in a typed report counts as no key id: some writers put it where the
// resource's schema requires one and none is known.
const UnknownRemoteKeyID = "unknown"

// Report is an Entry in the typed form that third-party reporters write: an element of healthReports in
// operator.openshift.io/v1, whose package brings the whole of the core API with it.
type Report struct {
	NodeName        string `json:"nodeName"`
	KeyID           string `json:"keyID"`
	Status          string `json:"status"`
	LastCheckedTime string `json:"lastCheckedTime"`
	RemoteKeyID     string `json:"remoteKeyID"`
	Detail          string `json:"detail,omitempty"`
}

var typedStatus = map[string]Status{"Healthy": Healthy, "Unhealthy": Unhealthy, "Error": Error}

// Entry returns the report as an entry. The typed form has no interval, so its
// Interval is zero: readers assume DefaultInterval. A
// RemoteKeyID of UnknownRemoteKeyID becomes no KEKID.
func (r Report) Entry() (Entry, error) {
	status, known := typedStatus[r.Status]
	if !known {
		return Entry{}, fmt.Errorf("status: %q is none of Healthy, Unhealthy, Error", r.Status)
	}
	checked, err := time.Parse(time.RFC3339, r.LastCheckedTime)
	if err != nil {
		return Entry{}, fmt.Errorf("lastCheckedTime: %q is not an RFC 3339 time", r.LastCheckedTime)
	}
	if r.RemoteKeyID == UnknownRemoteKeyID {
		r.RemoteKeyID = ""
	}
	return Entry{KeyID: r.KeyID, KEKID: r.RemoteKeyID, Status: status, LastChecked: checked.UTC(), Detail: r.Detail}, nil
}
