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
	for name, tt := range map[string]struct {
		entries []Entry
		want    string
	}{
		"no plugin": {nil, `[]`},
		"healthy": {
			[]Entry{{KeyID: "2", KEKID: "k-7", Status: Healthy, LastChecked: noon, Interval: 30 * time.Second}},
			`[{"keyID":"2","kekID":"k-7","status":"healthy","lastChecked":"2026-05-08T12:34:56Z","intervalSeconds":30}]`,
		},
		"the UIDs of a pod and of a static pod, and a malformed one": {
			[]Entry{
				{
					KeyID: "1", Status: Error, LastChecked: noon, Interval: time.Second,
					Reporter: "8d1f2a04-4c1e-4a55-9a51-0d2c7f6b9e10",
				},
				{KeyID: "2", Status: Error, LastChecked: noon, Reporter: "0123456789abcdef0123456789abcdef"},
				{KeyID: "3", Status: Error, LastChecked: noon, Reporter: "../etc"},
			},
			`[{"keyID":"1","status":"error","lastChecked":"2026-05-08T12:34:56Z","intervalSeconds":1,` +
				`"reporter":"8d1f2a04-4c1e-4a55-9a51-0d2c7f6b9e10"},` +
				`{"keyID":"2","status":"error","lastChecked":"2026-05-08T12:34:56Z",` +
				`"reporter":"0123456789abcdef0123456789abcdef"},` +
				`{"keyID":"3","status":"error","lastChecked":"2026-05-08T12:34:56Z"}]`,
		},
		"in the order given, another zone, no interval, no kekID": {
			[]Entry{
				{KeyID: "2", Status: Error, LastChecked: noon.In(time.FixedZone("", 7200)), Detail: "cannot connect"},
				{KeyID: "1", KEKID: "k", Status: Unhealthy, LastChecked: noon, Detail: "sealed"},
			},
			`[{"keyID":"2","status":"error","lastChecked":"2026-05-08T12:34:56Z","detail":"cannot connect"},` +
				`{"keyID":"1","kekID":"k","status":"unhealthy","lastChecked":"2026-05-08T12:34:56Z","detail":"sealed"}]`,
		},
		"no HTML escaping": {
			[]Entry{{KeyID: "a&b", Status: Error, LastChecked: noon, Detail: "<vault>"}},
			`[{"keyID":"a&b","status":"error","lastChecked":"2026-05-08T12:34:56Z","detail":"<vault>"}]`,
		},
		"control characters are replaced": {
			[]Entry{{KeyID: "1", Status: Error, LastChecked: noon, Detail: "\x1b[31mred\x00\r\nnext\u2028line\u202e\u0085 "}},
			`[{"keyID":"1","status":"error","lastChecked":"2026-05-08T12:34:56Z","detail":"[31mred   next line"}]`,
		},
		"part of a second is a second": {
			[]Entry{{KeyID: "1", Status: Healthy, LastChecked: noon, Interval: 1500 * time.Millisecond}},
			`[{"keyID":"1","status":"healthy","lastChecked":"2026-05-08T12:34:56Z","intervalSeconds":2}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := EncodeMessage(tt.entries)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
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

func TestLongMessageLosesDetailsFirstAndNeverEntries(t *testing.T) {
	entries := func(n int, keyID, kekID, detail string) []Entry {
		list := make([]Entry, n)
		for i := range list {
			list[i] = Entry{
				KeyID: keyID + string(rune('a'+i)), KEKID: kekID, Status: Unhealthy, LastChecked: noon, Detail: detail,
				Interval: time.Hour,
			}
		}
		return list
	}
	for name, tt := range map[string]struct {
		entries []Entry
		check   func(t *testing.T, decoded []Entry)
	}{
		"details of escaped characters are shortened": {
			entries(16, "key", "k", strings.Repeat(`"`, 1024)+"\\"),
			func(t *testing.T, decoded []Entry) {
				for _, e := range decoded {
					if len(e.Detail) < 256 || e.KEKID != "k" {
						t.Errorf("detail of %d bytes, kekID %q", len(e.Detail), e.KEKID)
					}
				}
			},
		},
		"long key ids of control characters become hashes": {
			entries(16, strings.Repeat("k", 62), strings.Repeat("\x01", 1024), strings.Repeat("d", 1024)),
			func(t *testing.T, decoded []Entry) {
				for _, e := range decoded {
					if !strings.HasPrefix(e.KEKID, "sha256:") || len(e.KEKID) != maxEncodedKEKID || e.Detail != "" {
						t.Errorf("kekID %q, detail %q", e.KEKID, e.Detail)
					}
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			message, err := EncodeMessage(tt.entries)
			if err != nil {
				t.Fatal(err)
			}
			if len(message) > MaxMessage {
				t.Errorf("message is %d bytes", len(message))
			}
			decoded, err := DecodeMessage(message)
			if err != nil {
				t.Fatal(err)
			}
			if len(decoded) != len(tt.entries) {
				t.Fatalf("%d entries became %d", len(tt.entries), len(decoded))
			}
			tt.check(t, decoded)
		})
	}
	if _, err := EncodeMessage(entries(1000, "key", "k", "")); err == nil || !strings.Contains(err.Error(), "do not fit") {
		t.Errorf("a thousand entries: %v", err)
	}
}

func TestDecodeNamesWhatIsWrongAndWhere(t *testing.T) {
	const good = `{"keyID":"1","status":"healthy","lastChecked":"2026-05-08T12:34:56Z"}`
	for name, tt := range map[string]struct{ message, want string }{
		"empty":             {``, "not a JSON array"},
		"null":              {`null`, "not a JSON array of entries: it is null"},
		"object":            {`{}`, "not a JSON array"},
		"half":              {`[` + good, "not a JSON array"},
		"trailing":          {`[` + good + `] x`, "not a JSON array"},
		"element no object": {`[` + good + `,7]`, "cannot unmarshal number"},
		"no keyID":          {`[{"status":"healthy","lastChecked":"2026-05-08T12:34:56Z"}]`, "[0].keyID: is missing"},
		"keyID no string":   {`[{"keyID":7}]`, "cannot unmarshal number into Go struct field wireEntry.keyID"},
		"element null":      {`[` + good + `,null]`, "[1].keyID: is missing"},
		"status": {
			`[` + good + `,{"keyID":"2","status":"Healthy","lastChecked":"2026-05-08T12:34:56Z"}]`,
			`[1].status: "Healthy" is none of`,
		},
		"time": {
			`[{"keyID":"2","status":"error","lastChecked":"yesterday"}]`,
			`[0].lastChecked: "yesterday" is not an RFC 3339 time`,
		},
		"time that UTC cannot have": {
			`[{"keyID":"2","status":"error","lastChecked":"9999-12-31T23:59:59-01:00"}]`,
			`[0].lastChecked: "9999-12-31T23:59:59-01:00" is not an RFC 3339 time`,
		},
		"interval": {
			`[{"keyID":"2","status":"error","lastChecked":"2026-05-08T12:34:56Z","intervalSeconds":3601}]`,
			`[0].intervalSeconds: 3601 is not from 1 to 3600`,
		},
		"negative interval": {
			`[{"keyID":"2","status":"error","lastChecked":"2026-05-08T12:34:56Z","intervalSeconds":-1}]`,
			`[0].intervalSeconds: -1 is not`,
		},
		"twice":    {`[` + good + `,` + good + `]`, `[1].keyID: "1" is named twice`},
		"too long": {`[` + strings.Repeat(" ", MaxMessage) + `]`, "message is 32770 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			entries, err := DecodeMessage(tt.message)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want …%s…", err, tt.want)
			}
			if entries != nil {
				t.Errorf("an error, and yet entries: %v", entries)
			}
		})
	}
}

func TestMessageOfTheBoundIsDecoded(t *testing.T) {
	if _, err := DecodeMessage(`[` + strings.Repeat(" ", 32*1024-2) + `]`); err != nil {
		t.Error(err)
	}
}

func TestDecodeIgnoresUnknownFields(t *testing.T) {
	got, err := DecodeMessage(
		` [{"keyID":"1","kekID":"k","status":"healthy","lastChecked":"2026-05-08T14:34:56.5+02:00","new":{"a":[1]}}] `,
	)
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{
		{KeyID: "1", KEKID: "k", Status: Healthy, LastChecked: time.Date(2026, 5, 8, 12, 34, 56, 5e8, time.UTC)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodedReporterIsThePodsUIDOrEmpty(t *testing.T) {
	const uid = "8d1f2a04-4c1e-4a55-9a51-0d2c7f6b9e10"
	for reporter, want := range map[string]string{uid: uid, "": "", "a/../b": "", `a\n`: "", `\u00e9`: ""} {
		message := `[{"keyID":"1","status":"healthy","lastChecked":"2026-05-08T12:34:56Z","reporter":"` + reporter + `"}]`
		if got, err := DecodeMessage(message); err != nil || len(got) != 1 || got[0].Reporter != want {
			t.Errorf("%q: got %+v, %v, want %q", reporter, got, err, want)
		}
	}
}

func TestDecodedReasonHasTheFormOfOneOrIsEmpty(t *testing.T) {
	for reason, valid := range map[string]bool{
		"Timeout": true, "A": true, "z": true, "Zz_09": true, "_a": false, "0a": false, "a b": false, "a-b": false,
	} {
		message := `[{"keyID":"1","status":"error","lastChecked":"2026-05-08T12:34:56Z","reason":"` + reason + `"}]`
		if got, err := DecodeMessage(message); err != nil || len(got) != 1 || (got[0].Reason == Reason(reason)) != valid {
			t.Errorf("%q: got %+v, %v", reason, got, err)
		}
	}
}

// The worst case is 16 plugins with untrusted key IDs, because one byte of a key ID can take six bytes in JSON.
func TestSixteenLargestEntriesFitInAMessage(t *testing.T) {
	const most = 16 // as v1alpha1.MaxPlugins
	for name, fill := range map[string]string{
		"letters":            "k",
		"quotes":             `"`,
		"control characters": "\x01",
		"line separators":    "\u2028",
		"other scripts":      "鍵",
	} {
		for _, size := range []int{maxEncodedKEKID, 1024} {
			t.Run(fmt.Sprintf("key IDs of %d bytes of %s", size, name), func(t *testing.T) {
				id := func(n int) string { return strings.Repeat(fill, size/len(fill)-1) + string(rune('a'+n)) }
				entries := make([]Entry, most)
				for i := range entries {
					entries[i] = Entry{
						KeyID: strings.Repeat("k", 62) + string(rune('a'+i)), KEKID: id(i), Status: Unhealthy, LastChecked: noon,
						Reason: RoundTripMismatch, Detail: strings.Repeat(`"`, MaxDetail), Interval: MaxInterval,
						Reporter: "8d1f2a04-4c1e-4a55-9a51-0d2c7f6b9e10",
						Socket:   "/" + strings.Repeat("\x01", MaxSocket-1), Since: noon, RoundTrip: noon,
						Requested: strings.Repeat("r", 63),
					}
					for n := range MaxLost {
						entries[i].Lost = append(entries[i].Lost, id(n))
					}
				}
				message, err := EncodeMessage(entries)
				if err != nil {
					t.Fatal(err)
				}
				decoded, err := DecodeMessage(message)
				if err != nil || len(decoded) != most {
					t.Fatalf("%d entries, %v", len(decoded), err)
				}
				for i, e := range decoded {
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

// While shorter details are enough for the message to fit, KEK IDs are not replaced by hashes.
func TestLongMessageKeepsKeyIDsWhereShorterDetailsSuffice(t *testing.T) {
	lost := []string{strings.Repeat("a", 1024), strings.Repeat("b", 1024)}
	entries := make([]Entry, 8)
	for i := range entries {
		entries[i] = Entry{
			KeyID: string(rune('a' + i)), KEKID: strings.Repeat("c", 1024), Status: Unhealthy, LastChecked: noon,
			Detail: strings.Repeat("d", MaxDetail), Lost: lost,
		}
	}
	message, err := EncodeMessage(entries)
	if err != nil || len(message) > MaxMessage {
		t.Fatalf("%d bytes, %v", len(message), err)
	}
	decoded, err := DecodeMessage(message)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range decoded {
		if n := len(e.Detail); e.KEKID != entries[0].KEKID || !slices.Equal(e.Lost, lost) || n == MaxDetail || n < MaxDetail/2 {
			t.Errorf("kekID of %d bytes, detail of %d, lost %d", len(e.KEKID), len(e.Detail), len(e.Lost))
		}
	}
}

func TestEncodeMessageDoesNotWriteIntoItsArguments(t *testing.T) {
	make16 := func() []Entry {
		entries := make([]Entry, 16)
		for i := range entries {
			entries[i] = Entry{
				KeyID: string(rune('a' + i)), KEKID: strings.Repeat("k", 1024), Status: Unhealthy, LastChecked: noon,
				Detail: strings.Repeat("d", MaxDetail), Lost: []string{strings.Repeat("l", 1024), strings.Repeat("m", 1024)},
			}
		}
		return entries
	}
	entries := make16()
	message, err := EncodeMessage(entries)
	if err != nil || !strings.Contains(message, `"lost":["sha256:`) {
		t.Fatalf("the message has no hashes, %v", err)
	}
	if diff := cmp.Diff(make16(), entries); diff != "" {
		t.Error(diff)
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
		"one that begins as a hash":          {hashed + "x", hash(hashed + "x"), true},
		"one that begins as a shorter hash":  {hashed + "00", hash(hashed + "00"), true},
		"one as long as a hash that is none": {misleading, hash(misleading), true},
		"a hash and the hash of its text":    {hash("a"), hash(hash("a")), false},
		"none and one":                       {"", "k-7", false},
	} {
		t.Run(name, func(t *testing.T) {
			if SameKEK(tt.a, tt.b) != tt.same || SameKEK(tt.b, tt.a) != tt.same {
				t.Errorf("SameKEK(%q, %q) is not %v both ways", tt.a, tt.b, tt.same)
			}
		})
	}
}

func TestDecodeIgnoresOptionalFieldsOfAWrongFormat(t *testing.T) {
	at := time.Date(2026, 5, 8, 12, 34, 56, 0, time.UTC)
	longest := strings.Repeat("s", 107)
	nine, eight := `["1","2","3","4","5","6","7","8","9"]`, []string{"1", "2", "3", "4", "5", "6", "7", "8"}
	for name, tt := range map[string]struct {
		fields string
		want   Entry
	}{
		"all of them": {
			`"socket":"/run/kms.sock","since":"2026-05-08T12:34:56Z","roundTrip":"2026-05-08T14:34:56+02:00",` +
				`"requested":"r-1","lost":["k-6","k-5"]`,
			Entry{Socket: "/run/kms.sock", Since: at, RoundTrip: at, Requested: "r-1", Lost: []string{"k-6", "k-5"}},
		},
		"empty or null":         {`"socket":"","since":null,"roundTrip":"","requested":"","lost":null`, Entry{}},
		"a socket of the bound": {`"socket":"` + longest + `"`, Entry{Socket: longest}},
		"a longer socket":       {`"socket":"` + strings.Repeat("s", 108) + `"`, Entry{}},
		"times that are none":   {`"since":"yesterday","roundTrip":"2026-05-08"`, Entry{}},
		"times of the first and the last year": {`"since":"0000-01-01T00:00:00Z","roundTrip":"9999-12-31T23:59:59Z"`,
			Entry{Since: time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC), RoundTrip: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}},
		"the shortest interval":             {`"intervalSeconds":1`, Entry{Interval: MinInterval}},
		"the longest interval":              {`"intervalSeconds":3600`, Entry{Interval: MaxInterval}},
		"a time after the year 9999 in UTC": {`"since":"9999-12-31T23:59:59-23:00"`, Entry{}},
		"a time before the year 0 in UTC":   {`"roundTrip":"0000-01-01T00:00:00+23:00"`, Entry{}},
		"the zero time is not set":          {`"since":"0001-01-01T00:00:00Z"`, Entry{}},
		"a request of a wrong format":       {`"requested":"two words"`, Entry{}},
		"a request that is too long":        {`"requested":"` + strings.Repeat("r", 64) + `"`, Entry{}},
		"more lost keys than the bound":     {`"lost":` + nine, Entry{Lost: eight}},
		"none of these spoils another one":  {`"socket":"/s","requested":"?","since":"?"`, Entry{Socket: "/s"}},
	} {
		t.Run(name, func(t *testing.T) {
			message := `[{"keyID":"1","status":"healthy","lastChecked":"2026-05-08T12:34:56Z",` + tt.fields + `}]`
			got, err := DecodeMessage(message)
			if err != nil {
				t.Fatal(err)
			}
			tt.want.KeyID, tt.want.Status, tt.want.LastChecked = "1", Healthy, at
			if diff := cmp.Diff([]Entry{tt.want}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEncodedEntryHasAtMostTheBoundOfLostKeys(t *testing.T) {
	entry := Entry{KeyID: "1", Status: Healthy, LastChecked: noon}
	for n := range MaxLost + 1 {
		entry.Lost = append(entry.Lost, fmt.Sprint(n))
	}
	message, err := EncodeMessage([]Entry{entry})
	if err != nil || !strings.Contains(message, `"lost":["0","1","2","3","4","5","6","7"]`) {
		t.Errorf("%s, %v", message, err)
	}
}

func FuzzDecodeMessage(f *testing.F) {
	f.Add(
		`[{"keyID":"2","kekID":"k","status":"healthy","lastChecked":"2026-05-08T12:34:56Z","intervalSeconds":30,` +
			`"reporter":"0123-a"}]`,
	)
	f.Add(`[{"keyID":"2","status":"error","lastChecked":"2026-05-08T12:34:56+25:00","detail":"\u0000"}]`)
	f.Add(
		`[{"keyID":"2","status":"healthy","lastChecked":"2026-05-08T12:34:56Z","socket":"@kms",` +
			`"since":"9999-12-31T23:59:59-23:00","roundTrip":"2026-05-08T12:34:56Z","requested":"r","lost":["k","sha256:"]}]`,
	)
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
		again, err := DecodeMessage(encoded)
		if err != nil {
			t.Fatalf("cannot read what was written, %q: %v", encoded, err)
		}
		if len(again) != len(entries) {
			t.Fatalf("%d entries became %d", len(entries), len(again))
		}
		once, _ := EncodeMessage(again)
		if once != encoded {
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
	for _, short := range []string{"", "short", strings.Repeat("é", 512)} {
		if got := Cut(short, 1024); got != short {
			t.Errorf("%q became %q", short, got)
		}
	}
	for limit, want := range map[int]string{2: "", 3: "…"} {
		if got := Cut("é…", limit); got != want {
			t.Errorf("in %d bytes, of which the mark has 3: %q", limit, got)
		}
	}
	if got := CleanDetail(strings.Repeat("a", 2000)); len(got) != 1024 {
		t.Errorf("a detail of %d bytes", len(got))
	}
}
