package contract

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	MaxMessage = 32 * 1024 // bytes of an encoded message: the bound of metav1.Condition
	MaxDetail  = 1024      // bytes of an encoded detail: the typed form's bound
	// maxEncodedKEKID is what remains of a KEKID, in bytes, in a message that would be too long with all details gone.
	maxEncodedKEKID = len(hashed) + sha256.Size*2
	hashed          = "sha256:"
)

// wireEntry fixes the order of fields and the form of times.
type wireEntry struct {
	KeyID           string `json:"keyID"`
	KEKID           string `json:"kekID,omitempty"`
	Status          Status `json:"status"`
	LastChecked     string `json:"lastChecked"`
	Reason          Reason `json:"reason,omitempty"`
	Detail          string `json:"detail,omitempty"`
	IntervalSeconds int64  `json:"intervalSeconds,omitempty"`
	Reporter        string `json:"reporter,omitempty"`

	Socket    string   `json:"socket,omitempty"`
	Since     string   `json:"since,omitempty"`
	RoundTrip string   `json:"roundTrip,omitempty"`
	Requested string   `json:"requested,omitempty"`
	Lost      []string `json:"lost,omitempty"`
}

// EncodeMessage encodes entries, in their order, as a condition's message: a minified JSON array without HTML escaping
// and without a final newline. Equal entries give equal bytes.
//
// The result is at most MaxMessage bytes. Control characters in details become
// spaces, and details over MaxDetail bytes are cut at a rune. When the whole is
// too long, details are shortened evenly. Then each KEKID, also in Lost, is replaced by its hash if that is
// shorter in JSON (see SameKEK). Entries are never omitted: a message that is still too long is an error.
func EncodeMessage(entries []Entry) (string, error) {
	wire := make([]wireEntry, len(entries))
	for i, e := range entries {
		wire[i] = wireEntry{
			KeyID: e.KeyID, KEKID: e.KEKID, Status: e.Status, LastChecked: e.LastChecked.UTC().Format(time.RFC3339),
			Reason: e.Reason, Detail: CleanDetail(e.Detail), IntervalSeconds: wholeSeconds(e.Interval),
			Reporter: onlyIf(ValidPodUID(e.Reporter), e.Reporter),
			Socket:   e.Socket, Since: optionalTime(e.Since), RoundTrip: optionalTime(e.RoundTrip), Requested: e.Requested,
			Lost: slices.Clone(e.Lost[:min(len(e.Lost), MaxLost)]),
		}
	}
	for limit := MaxDetail; ; limit = limit * 3 / 4 { // a few rounds, and most of the text remains
		for i := range wire {
			wire[i].Detail = Cut(wire[i].Detail, limit)
			if limit == 0 { // the last round
				wire[i].KEKID = shortKEKID(wire[i].KEKID)
				for n, lost := range wire[i].Lost {
					wire[i].Lost[n] = shortKEKID(lost)
				}
			}
		}
		message := Marshal(wire)
		switch {
		case len(message) <= MaxMessage:
			return message, nil
		case limit == 0:
			return "", fmt.Errorf("%d entries do not fit in a message: %d bytes without details, the bound is %d",
				len(wire), len(message), MaxMessage)
		}
	}
}

func shortKEKID(id string) string {
	if len(Marshal(id)) > maxEncodedKEKID+len(`""`) { // in JSON one byte may take six
		return hashOf(id)
	}
	return id
}

// hashOf is what a long message has in place of a KEK ID. It returns a hash unchanged.
func hashOf(id string) string {
	digits, isHash := strings.CutPrefix(id, hashed)
	if raw, err := hex.DecodeString(digits); isHash && err == nil && len(raw) == sha256.Size {
		return id
	}
	return hashed + FileHash([]byte(id))
}

// SameKEK reports whether two KEK IDs, each as it is or as the hash that a long message has in its
// place, are the same.
func SameKEK(a, b string) bool { return hashOf(a) == hashOf(b) }

// optionalTime is empty for the zero time, which a field leaves out.
func optionalTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// Marshal returns v as JSON without HTML escaping and without a final newline. It panics if v cannot be encoded.
func Marshal(v any) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("marshal %T: %v", v, err))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// wholeSeconds rounds up, so that no reader considers an entry stale earlier than its writer does.
func wholeSeconds(d time.Duration) int64 { return int64((max(0, d) + time.Second - 1) / time.Second) }

// CleanDetail makes a text fit to be a detail: Clean, trimmed, at most MaxDetail bytes.
func CleanDetail(s string) string {
	s = s[:min(len(s), 4*MaxDetail)]                                  // a bound for the work: a plugin chooses this text
	return strings.Clone(Cut(strings.TrimSpace(Clean(s)), MaxDetail)) // so that the long text can be freed
}

// Clean makes external text a line that is safe to print: valid UTF-8, with a space for each control, line break,
// character that turns the direction of text, byte order mark, and noncharacter, which not every parser accepts.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Noncharacter_Code_Point) ||
			r == '\u2028' || r == '\u2029' || r == '\uFEFF' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}

// Cut shortens s to at most limit bytes, at a rune, and marks that it did.
func Cut(s string, limit int) string {
	const mark = "…"
	if len(s) <= limit {
		return s
	}
	if limit < len(mark) {
		return ""
	}
	return strings.ToValidUTF8(s[:limit-len(mark)], "") + mark
}

// DecodeMessage decodes a condition's message. Unknown fields are ignored. An error has what is wrong and where, as in
// "[1].lastChecked: …"; with an error no entry is returned, since half a message leads to the wrong conclusion.
func DecodeMessage(message string) ([]Entry, error) {
	if len(message) > MaxMessage {
		return nil, fmt.Errorf("message is %d bytes, the bound is %d", len(message), MaxMessage)
	}
	var wire []wireEntry
	if err := json.Unmarshal([]byte(message), &wire); err != nil || wire == nil {
		return nil, fmt.Errorf("message is not a JSON array of entries: %w", cmp.Or(err, errors.New("it is null")))
	}
	entries := make([]Entry, 0, len(wire))
	for i := range wire {
		e, err := wire[i].decode()
		if err != nil {
			return nil, fmt.Errorf("[%d]%w", i, err)
		}
		if slices.ContainsFunc(entries, func(seen Entry) bool { return seen.KeyID == e.KeyID }) {
			return nil, fmt.Errorf("[%d].keyID: %q is named twice", i, e.KeyID)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// decode's errors begin with the path inside the entry. An optional field of another format is ignored, as if it were
// not set.
func (w wireEntry) decode() (Entry, error) {
	checked, isTime := parseTime(w.LastChecked)
	switch {
	case w.KeyID == "":
		return Entry{}, errors.New(".keyID: is missing")
	case w.Status != Healthy && w.Status != Unhealthy && w.Status != Error:
		return Entry{}, fmt.Errorf(".status: %q is none of %q, %q, %q", w.Status, Healthy, Unhealthy, Error)
	case !isTime:
		return Entry{}, fmt.Errorf(".lastChecked: %q is not an RFC 3339 time", w.LastChecked)
	case w.IntervalSeconds < 0 || w.IntervalSeconds > int64(MaxInterval/time.Second): // 0 is not set
		return Entry{}, fmt.Errorf(".intervalSeconds: %d is not from 1 to 3600", w.IntervalSeconds)
	}
	isReason := IsWord(string(w.Reason), "_") && w.Reason >= "A" // as a condition's (metav1.Condition)
	e := Entry{
		KeyID: w.KeyID, KEKID: w.KEKID, Status: w.Status, LastChecked: checked, Detail: w.Detail,
		Reason:    onlyIf(isReason, w.Reason),
		Interval:  time.Duration(w.IntervalSeconds) * time.Second,
		Reporter:  onlyIf(ValidPodUID(w.Reporter), w.Reporter),
		Socket:    onlyIf(len(w.Socket) <= MaxSocket, w.Socket),
		Requested: onlyIf(ValidRequest(w.Requested), w.Requested),
		Lost:      w.Lost[:min(len(w.Lost), MaxLost)],
	}
	e.Since, _ = parseTime(w.Since)
	e.RoundTrip, _ = parseTime(w.RoundTrip)
	return e, nil
}

// onlyIf returns a text if it is valid, else none.
func onlyIf[T ~string](valid bool, text T) T {
	if valid {
		return text
	}
	return ""
}

// parseTime returns an RFC 3339 time in UTC. It is not valid if its year in UTC is not 0 to 9999, as in RFC 3339.
func parseTime(text string) (at time.Time, valid bool) {
	at, err := time.Parse(time.RFC3339, text)
	if at = at.UTC(); err != nil || at.Year() < 0 || at.Year() > 9999 {
		return time.Time{}, false
	}
	return at, true
}

// Printable returns JSON, such as a message, in a form that is safe to print to a terminal: the same JSON, with each
// character of the basic plane that cannot be printed as \u and four hexadecimal digits. JSON itself leaves DEL, C1 and
// bidirectional controls as they are. Newlines stay: in JSON they are only between values.
func Printable(text string) []byte {
	const lastOfBasicPlane = 0xFFFF
	printable := make([]byte, 0, len(text)+1)
	for _, r := range text {
		if r == '\n' || r > lastOfBasicPlane || strconv.IsPrint(r) {
			printable = utf8.AppendRune(printable, r)
		} else {
			printable = fmt.Appendf(printable, `\u%04x`, r)
		}
	}
	return printable
}

// Body returns v as the body of a request that changes an object, which a YAML parser reads as JSON's does:
// kube-apiserver reads the body of an apply as YAML. Its parser (go.yaml.in/yaml, readerc.go and scannerc.go) refuses
// some characters that JSON allows in a string, with "control characters are not allowed", changes others, and knows no
// surrogate pairs. One such character, in a name that a plugin chooses, would stop every write that holds it.
func Body(v any) []byte { return Printable(Marshal(v)) }
