package kmsplugin

import "testing"

// StartForTest is [Start] for a plugin that ends with the test.
func StartForTest(t testing.TB, o Options) *Plugin {
	t.Helper()
	p, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}
