package discovery

import (
	"context"
	"slices"
	"testing"

	"github.com/coordd/coordd/internal/tests/names"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]bool{
		"coordd.test:7000": true, "10.0.0.1:7000, [::1]:7000": true, "_peer._tcp.coordd.test": true,
		"_peer._tcp.coordd.test,coordd.test:7000": true,
		"": false, "coordd.test": false, "coordd.test:0": false, "coordd.test:x": false,
		":7000": false, "a:1,": false,
	} {
		if _, err := Parse(text); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestLookup resolves names whose records change, are missing, and cannot be had.
func TestLookup(t *testing.T) {
	dns := names.Start(t)
	r := NewResolver(dns.Addr)
	expect := func(text string, want ...string) {
		t.Helper()
		parsed, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Lookup(context.Background(), r, parsed)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q %v, want %q", text, got, err, want)
		}
	}
	expect("coordd.test:7000")
	expect("_peer._tcp.coordd.test")
	dns.Set("coordd.test", "10.0.0.2", "10.0.0.1", "fd00::1")
	expect("coordd.test:7000", "10.0.0.1:7000", "10.0.0.2:7000", "[fd00::1]:7000")
	expect("coordd.test:7000,10.0.0.1:7000", "10.0.0.1:7000", "10.0.0.2:7000", "[fd00::1]:7000")
	dns.Set("pod-0.test", "10.0.1.1")
	dns.Set("pod-1.test", "10.0.1.2")
	dns.SetSRV("_peer._tcp.coordd.test", names.SRV{Target: "pod-0.test", Port: 7001},
		names.SRV{Target: "pod-1.test", Port: 7002}, names.SRV{Target: "gone.test", Port: 7003})
	expect("_peer._tcp.coordd.test", "10.0.1.1:7001", "10.0.1.2:7002")
	dns.Set("pod-1.test", "10.0.1.3")
	expect("_peer._tcp.coordd.test", "10.0.1.1:7001", "10.0.1.3:7002")

	dns.Fail(true)
	for _, name := range []string{"coordd.test:7000", "_peer._tcp.coordd.test"} {
		if got, err := Lookup(context.Background(), r, Names{name}); err == nil {
			t.Errorf("%s: %q from a server that fails", name, got)
		}
	}
}
