// Package contract is the contract between writers and readers of reports on KMS
// plugins: how a report is named, how it is encoded, and for how long it is valid.
//
// A reporter for each API server pod writes one condition, named KMSHealthReporter_<node>, to the API server's
// operator resource. Its status is always "True" and its reason always "AsExpected"; the facts are in its message, a
// minified JSON array with an Entry per plugin.
//
// The package is pure, and imports nothing of this project. Anyone may import it: a rotation
// controller, a must-gather script, a third-party operator.
package contract

import (
	"cmp"
	"time"
)

// Status is the result of checking a plugin.
type Status string

const (
	Healthy   Status = "healthy"   // the plugin answered, and reported that it works
	Unhealthy Status = "unhealthy" // the plugin answered, and reported that it does not work
	Error     Status = "error"     // the check got no answer from the plugin
)

// Bounds on how often a plugin is checked, and what a reader assumes of an entry without an interval.
const (
	MinInterval     = time.Second
	MaxInterval     = time.Hour
	DefaultInterval = 30 * time.Second
)

// StaleIntervals is the number of intervals after which an entry is no longer valid:
// one for the delivery, and the rest for missed checks.
const StaleIntervals = 4

// Entry is the last result of one reporter about one plugin.
type Entry struct {
	// KeyID is the id of the encryption-key secret that the plugin serves, a sequence number and not a
	// cryptographic key: "2" for /var/run/kmsplugin/kms-2.sock.
	KeyID string
	// KEKID is the plugin's own key_id (KMS v2 StatusResponse), which names the remote key: 1 to 1,024
	// bytes. Empty when the plugin returned no valid one.
	KEKID  string
	Status Status // the verdict
	// LastChecked is when this plugin's answer, or the failure to get one, arrived. Encoded in UTC to the second.
	LastChecked time.Time
	Reason      Reason // why it is not healthy, in one word; empty when it is, and where the writer gives none
	Detail      string // why it is not healthy, for people; at most MaxDetail bytes are encoded
	// Interval is how often the plugin is checked, encoded in whole seconds, rounded up. Zero: not reported;
	// readers assume DefaultInterval.
	Interval time.Duration
	// Reporter is the UID of the pod whose reporter wrote the entry, as that pod itself knows it (see
	// ValidPodUID); empty when it is not known, as for a reporter that was set up by hand.
	Reporter string

	// The fields below are for people, and optional. Times are by the node's clock.

	// Socket is the path that the endpoint leads to, at most MaxSocket bytes; abstract with "@".
	Socket string
	// Since is when Status and Reason became what they are.
	Since time.Time
	// RoundTrip is when the last successful round trip ended.
	RoundTrip time.Time
	// Requested is the last request for a round trip that was fulfilled, see ValidRequest.
	Requested string
	// Lost are former KEK IDs, at most MaxLost, under which something was encrypted that the plugin no
	// longer decrypts. Whether anything stored still needs them, is not known to the reporter.
	Lost []string
}

// Bounds of optional fields.
const (
	MaxSocket = 107 // bytes: sizeof(sockaddr_un.sun_path) less its final NUL, unix(7)
	MaxLost   = 8
)

// Stale reports whether an entry is older than StaleIntervals of its intervals: the plugin's state is unknown,
// whatever its status is. Times are of the wall clock here and in Skewed: the monotonic clock stands still while a
// machine is suspended.
func (e Entry) Stale(now time.Time) bool { return now.Round(0).After(e.StaleAt()) }

// Skewed reports whether an entry is from the future by more than one interval: its age is unknown.
func (e Entry) Skewed(now time.Time) bool {
	return now.Round(0).Before(e.LastChecked.Add(-e.Validity() / StaleIntervals))
}

// StaleAt returns the last instant at which the entry is not yet stale, by its node's clock.
func (e Entry) StaleAt() time.Time { return e.LastChecked.Add(e.Validity()) }

// Validity is for how long the entry is valid, without a change.
func (e Entry) Validity() time.Duration {
	return StaleIntervals * cmp.Or(max(0, e.Interval), DefaultInterval)
}
