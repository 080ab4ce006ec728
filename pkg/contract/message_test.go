package contract

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 5, 8, 12, 34, 56, 789, time.UTC)

func TestEncodedMessageIsStable(t *testing.T) {
	const uid, mirror = "8d1f2a04-4c1e-4a55-9a51-0d2c7f6b9e10", "0123456789abcdef0123456789abcdef"
	for name, tt := range map[string]struct {
		entry Entry
		want  string // after lastChecked
	}{
		"nothing else":                    {Entry{}, ""},
		"the UID of a pod":                {Entry{Interval: time.Second, Reporter: uid}, `,"intervalSeconds":1,"reporter":"` + uid + `"`},
		"the UID of a static pod":         {Entry{Reporter: mirror}, `,"reporter":"` + mirror + `"`},
		"a malformed UID":                 {Entry{Reporter: "../etc"}, ""},
		"no HTML escaping":                {Entry{Detail: "<vault> & more"}, `,"detail":"<vault> & more"`},
		"control characters are replaced": {Entry{Detail: "\x1b[31mred\x00\r\nnext\u2028line\u202e\u0085 "}, `,"detail":"[31mred   next line"`},
		"part of a second is a second":    {Entry{Interval: 1500 * time.Millisecond}, `,"intervalSeconds":2`},
		"at most the bound of lost keys":  {Entry{Lost: strings.Split("012345678", "")}, `,"lost":["0","1","2","3","4","5","6","7"]`},
		"all fields": {Entry{Reason: Timeout, Detail: "d", Interval: time.Minute, Reporter: "a", Socket: "@kms", Since: noon, RoundTrip: noon.In(time.FixedZone("", 7200)), Requested: "r", Lost: []string{"k"}},
			`,"reason":"Timeout","detail":"d","intervalSeconds":60,"reporter":"a","socket":"@kms","since":"2026-05-08T12:34:56Z","roundTrip":"2026-05-08T12:34:56Z","requested":"r","lost":["k"]`},
	} {
		t.Run(name, func(t *testing.T) {
			tt.entry.KeyID, tt.entry.Status, tt.entry.LastChecked = "1", Error, noon.In(time.FixedZone("", 7200))
			first := Entry{KeyID: "2", KEKID: "k-7", Status: Healthy, LastChecked: noon}
			got, err := EncodeMessage([]Entry{first, tt.entry}) // in the order given
			want := `[{"keyID":"2","kekID":"k-7","status":"healthy","lastChecked":"2026-05-08T12:34:56Z"},` +
				`{"keyID":"1","status":"error","lastChecked":"2026-05-08T12:34:56Z"` + tt.want + `}]`
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Error(err, diff)
			}
		})
	}
	if got, err := EncodeMessage(nil); got != `[]` || err != nil {
		t.Errorf("no plugin: %s, %v", got, err)
	}
}

// The rule of docs/reference/contract.md, implemented a second time.
func TestEachCharacterThatIsNoTextBecomesASpaceInADetail(t *testing.T) {
	for r := rune(0); r <= utf8.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		replaced := r < 0x20 || r >= 0x7F && r <= 0x9F || // controls
			r == 0x061C || r == 0x200E || r == 0x200F || r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069 || // direction
			r == 0x2028 || r == 0x2029 || r == 0xFEFF ||
			r >= 0xFDD0 && r <= 0xFDEF || r&0xFFFE == 0xFFFE // noncharacters
		want := "a" + string(r) + "b"
		if replaced {
			want = "a b"
		}
		if got := CleanDetail("a" + string(r) + "b"); got != want {
			t.Errorf("%U became %+q", r, got)
		}
	}
}

// copies returns n entries that differ in their key ID, of which each has the end of keyID.
func copies(n int, e Entry, keyID string) []Entry {
	entries := slices.Repeat([]Entry{e}, n)
	for i := range entries {
		entries[i].KeyID, entries[i].Lost = string(rune('a'+i))+keyID, slices.Clone(e.Lost)
		entries[i].Status, entries[i].LastChecked = Unhealthy, noon
	}
	return entries
}

// exchange returns what a reader gets of entries.
func exchange(t *testing.T, entries []Entry) []Entry {
	t.Helper()
	message, err := EncodeMessage(entries)
	if err != nil || len(message) > MaxMessage {
		t.Fatalf("%d bytes, %v", len(message), err)
	}
	decoded, err := DecodeMessage(message)
	if err != nil || len(decoded) != len(entries) {
		t.Fatalf("%d entries became %d, %v", len(entries), len(decoded), err)
	}
	return decoded
}

func TestLongMessageLosesDetailsFirstAndNeverEntries(t *testing.T) {
	long, longDetail := strings.Repeat("\x01", 1024), strings.Repeat("d", MaxDetail)
	isHash := func(id string) bool { return strings.HasPrefix(id, hashed) && len(id) == maxEncodedKEKID }
	for name, tt := range map[string]struct {
		n     int
		entry Entry
		check func(Entry) bool
	}{
		"details of escaped characters are shortened": {
			16, Entry{KEKID: "k", Interval: time.Hour, Detail: strings.Repeat(`"`, 1024) + "\\"},
			func(e Entry) bool { return len(e.Detail) >= 256 && e.KEKID == "k" },
		},
		"long KEK IDs stay where shorter details suffice": {
			8, Entry{KEKID: strings.Repeat("c", 1024), Detail: longDetail, Lost: []string{strings.Repeat("a", 1024), strings.Repeat("b", 1024)}},
			func(e Entry) bool {
				return len(e.KEKID) == 1024 && len(e.Lost[1]) == 1024 && len(e.Detail) < MaxDetail && len(e.Detail) >= MaxDetail/2
			},
		},
		"else they become hashes": {
			16, Entry{KEKID: long, Detail: longDetail, Lost: []string{long, "k"}},
			func(e Entry) bool { return isHash(e.KEKID) && isHash(e.Lost[0]) && e.Lost[1] == "k" && e.Detail == "" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			entries := copies(tt.n, tt.entry, strings.Repeat("k", 62))
			for _, e := range exchange(t, entries) {
				if !tt.check(e) {
					t.Errorf("%+v", e)
				}
			}
			if diff := cmp.Diff(copies(tt.n, tt.entry, strings.Repeat("k", 62)), entries); diff != "" {
				t.Errorf("the arguments were changed: %s", diff)
			}
		})
	}
	if _, err := EncodeMessage(copies(1000, Entry{}, "")); err == nil || !strings.Contains(err.Error(), "do not fit") {
		t.Errorf("a thousand entries: %v", err)
	}
}

// one returns a message with one entry that has these fields besides, or in place of, the required ones.
func one(fields string) string {
	return `[{"keyID":"1","status":"healthy","lastChecked":"2026-05-08T12:34:56Z"` + fields + `}]`
}

func TestDecodeNamesWhatIsWrongAndWhere(t *testing.T) {
	good := strings.Trim(one(""), "[]")
	for name, tt := range map[string]struct{ message, want string }{
		"empty":                     {``, "not a JSON array"},
		"null":                      {`null`, "not a JSON array of entries: it is null"},
		"object":                    {`{}`, "not a JSON array"},
		"half":                      {`[` + good, "not a JSON array"},
		"trailing":                  {one("") + ` x`, "not a JSON array"},
		"element no object":         {`[` + good + `,7]`, "cannot unmarshal number"},
		"no keyID":                  {one(`,"keyID":""`), "[0].keyID: is missing"},
		"keyID no string":           {one(`,"keyID":7`), "cannot unmarshal number into Go struct field wireEntry.keyID"},
		"element null":              {`[` + good + `,null]`, "[1].keyID: is missing"},
		"status":                    {one(`,"status":"Healthy"`), `[0].status: "Healthy" is none of`},
		"time":                      {one(`,"lastChecked":"yesterday"`), `[0].lastChecked: "yesterday" is not an RFC 3339 time`},
		"time that UTC cannot have": {one(`,"lastChecked":"9999-12-31T23:59:59-01:00"`), `[0].lastChecked: "9999-12-31T23:59:59-01:00" is not an RFC 3339 time`},
		"interval":                  {one(`,"intervalSeconds":3601`), `[0].intervalSeconds: 3601 is not from 1 to 3600`},
		"negative interval":         {one(`,"intervalSeconds":-1`), `[0].intervalSeconds: -1 is not`},
		"twice":                     {`[` + good + `,` + good + `]`, `[1].keyID: "1" is named twice`},
		"too long":                  {`[` + strings.Repeat(" ", MaxMessage) + `]`, "message is 32770 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			entries, err := DecodeMessage(tt.message)
			if err == nil || !strings.Contains(err.Error(), tt.want) || entries != nil {
				t.Errorf("got %v, %v, want …%s…", entries, err, tt.want)
			}
		})
	}
	if _, err := DecodeMessage(`[` + strings.Repeat(" ", 32*1024-2) + `]`); err != nil { // the bound
		t.Error(err)
	}
}

// The worst case is 16 plugins with untrusted key IDs, because one byte of a key ID can take six bytes in JSON.
func TestSixteenLargestEntriesFitInAMessage(t *testing.T) {
	for name, fill := range map[string]string{
		"letters": "k", "quotes": `"`, "control characters": "\x01", "line separators": "\u2028", "other scripts": "鍵",
	} {
		for _, size := range []int{maxEncodedKEKID, 1024} {
			t.Run(fmt.Sprintf("key IDs of %d bytes of %s", size, name), func(t *testing.T) {
				id := func(n int) string { return strings.Repeat(fill, size/len(fill)-1) + string(rune('a'+n)) }
				entries := copies(16, Entry{ // as v1alpha1.MaxPlugins
					Reason: RoundTripMismatch, Detail: strings.Repeat(`"`, MaxDetail), Interval: MaxInterval,
					Reporter: "8d1f2a04-4c1e-4a55-9a51-0d2c7f6b9e10", Socket: "/" + strings.Repeat("\x01", MaxSocket-1),
					Since: noon, RoundTrip: noon, Requested: strings.Repeat("r", 63), Lost: make([]string, MaxLost),
				}, strings.Repeat("k", 62))
				for i := range entries {
					entries[i].KEKID = id(i)
					for n := range MaxLost {
						entries[i].Lost[n] = id(n)
					}
				}
				for i, e := range exchange(t, entries) {
					if !SameKEK(e.KEKID, entries[i].KEKID) || !slices.EqualFunc(e.Lost, entries[i].Lost, SameKEK) {
						t.Errorf("kekID %q, lost %q", e.KEKID, e.Lost)
					}
					e.KEKID, e.Lost, e.Detail, e.LastChecked, e.Since, e.RoundTrip = entries[i].KEKID, entries[i].Lost,
						entries[i].Detail, noon, noon, noon
					if diff := cmp.Diff(entries[i], e); diff != "" {
						t.Error(diff)
					}
				}
			})
		}
	}
}

func TestSameKEKComparesKeyIDsInEitherForm(t *testing.T) {
	hash := func(id string) string { return hashed + FileHash([]byte(id)) }
	long := strings.Repeat("k", 1024)
	misleading := hashed + strings.Repeat("\x01", maxEncodedKEKID-len(hashed))
	for name, tt := range map[string]struct {
		a, b string
		same bool
	}{
		"equal":                              {"k-7", "k-7", true},
		"different":                          {"k-7", "k-6", false},
		"a long one and its hash":            {long, hash(long), true},
		"two hashes of one":                  {hash(long), hash(long), true},
		"a long one and another one's hash":  {long, hash(long + "k"), false},
		"two hashes":                         {hash("a"), hash("b"), false},
		"a short one and its hash":           {"k-7", hash("k-7"), true},
		"one that begins as a shorter hash":  {hashed + "00", hash(hashed + "00"), true},
		"one as long as a hash that is none": {misleading, hash(misleading), true},
		"a hash and the hash of its text":    {hash("a"), hash(hash("a")), false},
		"none and one":                       {"", "k-7", false},
	} {
		if SameKEK(tt.a, tt.b) != tt.same || SameKEK(tt.b, tt.a) != tt.same {
			t.Errorf("%s: SameKEK(%q, %q) is not %v both ways", name, tt.a, tt.b, tt.same)
		}
	}
}

func TestDecodeIgnoresOptionalFieldsOfAWrongFormat(t *testing.T) {
	at := noon.Truncate(time.Second)
	uid, longest := "8d1f2a04-4c1e-4a55-9a51-0d2c7f6b9e10", strings.Repeat("s", 107)
	for fields, want := range map[string]Entry{
		`"socket":"/run/kms.sock","since":"2026-05-08T12:34:56Z","roundTrip":"2026-05-08T14:34:56+02:00","requested":"r-1","lost":["k-6","k-5"]`: {
			Socket: "/run/kms.sock", Since: at, RoundTrip: at, Requested: "r-1", Lost: []string{"k-6", "k-5"}},
		`"kekID":"k","lastChecked":"2026-05-08T14:34:56.5+02:00","new":{"a":[1]}`: {KEKID: "k", LastChecked: at.Add(time.Second / 2)},
		`"socket":"","since":null,"roundTrip":"","requested":"","lost":null`:      {},
		`"socket":"` + longest + `"`:                   {Socket: longest},
		`"socket":"s` + longest + `"`:                  {},
		`"since":"yesterday","roundTrip":"2026-05-08"`: {},
		`"since":"0000-01-01T00:00:00Z","roundTrip":"9999-12-31T23:59:59Z"`: {
			Since: time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), RoundTrip: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)},
		`"intervalSeconds":1`:                           {Interval: MinInterval},
		`"intervalSeconds":3600`:                        {Interval: MaxInterval},
		`"since":"9999-12-31T23:59:59-23:00"`:           {}, // after the year 9999 in UTC
		`"roundTrip":"0000-01-01T00:00:00+23:00"`:       {}, // before the year 0
		`"since":"0001-01-01T00:00:00Z"`:                {},
		`"requested":"two words"`:                       {},
		`"requested":"` + strings.Repeat("r", 64) + `"`: {},
		`"lost":["1","2","3","4","5","6","7","8","9"]`:  {Lost: []string{"1", "2", "3", "4", "5", "6", "7", "8"}},
		`"socket":"/s","requested":"?","since":"?"`:     {Socket: "/s"},
		`"reporter":"` + uid + `"`:                      {Reporter: uid},
		`"reporter":"a/../b"`:                           {},
		`"reporter":"a\n"`:                              {},
		`"reporter":"\u00e9"`:                           {},
		`"reason":"A"`:                                  {Reason: "A"}, `"reason":"z"`: {Reason: "z"}, `"reason":"Zz_09"`: {Reason: "Zz_09"},
		`"reason":"_a"`: {}, `"reason":"0a"`: {}, `"reason":"a b"`: {}, `"reason":"a-b"`: {},
	} {
		t.Run(fields, func(t *testing.T) {
			got, err := DecodeMessage(one("," + fields))
			want.KeyID, want.Status = "1", Healthy
			if want.LastChecked.IsZero() {
				want.LastChecked = at
			}
			if diff := cmp.Diff([]Entry{want}, got); diff != "" || err != nil {
				t.Error(err, diff)
			}
		})
	}
}

func FuzzDecodeMessage(f *testing.F) {
	f.Add(one(`,"kekID":"k","intervalSeconds":30,"reporter":"0123-a"`))
	f.Add(one(`,"lastChecked":"2026-05-08T12:34:56+25:00","detail":"\u0000"`))
	f.Add(one(`,"socket":"@kms","since":"9999-12-31T23:59:59-23:00","roundTrip":"2026-05-08T12:34:56Z","requested":"r","lost":["k","sha256:"]`))
	f.Add(`[null]`)
	f.Fuzz(func(t *testing.T, message string) {
		entries, err := DecodeMessage(message)
		if err != nil {
			if entries != nil {
				t.Fatalf("an error, and yet entries: %v", entries)
			}
			return
		}
		// Accepted entries can be encoded again, with the same meaning but for the documented changes.
		encoded, err := EncodeMessage(entries)
		if err != nil { // too long
			return
		}
		if once, _ := EncodeMessage(exchange(t, entries)); once != encoded {
			t.Fatalf("encoding is not stable:\n%s\n%s", encoded, once)
		}
	})
}

func TestACutIsBetweenCharacters(t *testing.T) {
	for _, tail := range []string{"", "a", "ab"} {
		got := Cut(tail+strings.Repeat("é", 1000), 1024)
		if len(got) > 1024 || len(got) < 1020 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	}
	half := strings.Repeat("é", 512)
	for _, tt := range []struct {
		text  string
		limit int
		want  string
	}{{"", 1024, ""}, {half, 1024, half}, {"é…", 2, ""}, {"é…", 3, "…"}} {
		if got := Cut(tt.text, tt.limit); got != tt.want {
			t.Errorf("%q in %d bytes, of which the mark has 3: %q", tt.text, tt.limit, got)
		}
	}
	if got := CleanDetail(strings.Repeat("a", 2000)); len(got) != 1024 {
		t.Errorf("a detail of %d bytes", len(got))
	}
}
