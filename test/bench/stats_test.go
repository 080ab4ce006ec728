package main

import "testing"

func TestMedianIsTheMiddle(t *testing.T) {
	for name, tt := range map[string]struct {
		list []int
		want int
	}{
		"one":               {[]int{7}, 7},
		"odd, out of order": {[]int{9, 1, 5}, 5},
		"even":              {[]int{4, 1, 3, 2}, 2},
		"an outlier":        {[]int{1, 1, 1, 1000}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			before := append([]int(nil), tt.list...)
			if got := median(tt.list); got != tt.want {
				t.Errorf("median(%v) = %d, want %d", tt.list, got, tt.want)
			}
			for i := range before {
				if before[i] != tt.list[i] {
					t.Fatalf("the list was changed to %v", tt.list)
				}
			}
		})
	}
}
