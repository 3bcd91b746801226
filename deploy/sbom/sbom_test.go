package main

import (
	"runtime/debug"
	"testing"
)

func TestBill(t *testing.T) {
	info := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Path: "example.org/a"},
		Deps: []*debug.Module{
			{Path: "example.org/b", Version: "v1.0.0"},
			{Path: "example.org/c", Version: "v1.0.0",
				Replace: &debug.Module{Path: "example.org/d", Version: "v2.0.0"}},
		}}
	b := billOf(info, "0.2.0", "2026-11-23T00:00:00Z")
	want := []string{"pkg:golang/std@go1.26.0", "pkg:golang/example.org/b@v1.0.0",
		"pkg:golang/example.org/d@v2.0.0"}
	if b.Metadata.Component.PURL != "pkg:golang/example.org/a@0.2.0" ||
		len(b.Components) != len(want) || len(b.Dependencies[0].DependsOn) != len(want) {
		t.Fatalf("%+v", b)
	}
	for i, c := range b.Components {
		if c.PURL != want[i] || c.Ref != want[i] || b.Dependencies[0].DependsOn[i] != want[i] {
			t.Errorf("%+v is not %s", c, want[i])
		}
	}
}
