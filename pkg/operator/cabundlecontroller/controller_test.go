package cabundlecontroller

import (
	"crypto/x509"
	"testing"
	"time"
)

func TestAnOldCAStaysUntilItExpires(t *testing.T) {
	now := time.Now()
	ca := func(name string, left time.Duration) *x509.Certificate {
		return &x509.Certificate{Raw: []byte(name), NotAfter: now.Add(left)}
	}
	old, expired, next := ca("old", 1), ca("expired", 0), ca("next", time.Hour)
	for name, c := range map[string]struct {
		current, before []*x509.Certificate
		want            string
	}{
		"the first":           {[]*x509.Certificate{old}, nil, "old"},
		"unchanged":           {[]*x509.Certificate{old}, []*x509.Certificate{old}, "old"},
		"a rotation":          {[]*x509.Certificate{next}, []*x509.Certificate{old, expired}, "old next"},
		"another order":       {[]*x509.Certificate{next, old}, []*x509.Certificate{old, next}, "old next"},
		"the old one again":   {[]*x509.Certificate{old}, []*x509.Certificate{next, old}, "next old"},
		"expired and current": {[]*x509.Certificate{expired}, []*x509.Certificate{expired}, "expired"},
	} {
		got := ""
		for _, ca := range merge(now, c.current, c.before) {
			got += " " + string(ca.Raw)
		}
		if got != " "+c.want {
			t.Errorf("%s: got%s, want %s", name, got, c.want)
		}
	}
}
