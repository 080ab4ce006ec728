package main

import "testing"

func TestStampsAreThePlacesOfTheTimes(t *testing.T) {
	const one = `\"lastChecked\":\"2026-05-08T12:00:00Z\"`
	for name, tt := range map[string]struct {
		body string
		want int
	}{
		"none":      {`{"message":"[]"}`, 0},
		"one":       {`{"message":"[{` + one + `}]"}`, 1},
		"two":       {`{"message":"[{` + one + `},{` + one + `}]"}`, 2},
		"cut short": {`{"message":"[{` + one[:len(one)-4], 0},
	} {
		t.Run(name, func(t *testing.T) {
			body := []byte(tt.body)
			found := stamps(body)
			if len(found) != tt.want {
				t.Fatalf("found %d, want %d", len(found), tt.want)
			}
			for _, s := range found {
				if string(s) != "2026-05-08T12:00:00Z" {
					t.Errorf("found %q", s)
				}
			}
		})
	}
}
