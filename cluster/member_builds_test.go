package cluster

import (
	"runtime/debug"
	"testing"
)

func TestBuildOf(t *testing.T) {
	set := func(pairs ...string) Build {
		info := &debug.BuildInfo{GoVersion: "go1.26.1"}
		for i := 0; i < len(pairs); i += 2 {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: pairs[i],
				Value: pairs[i+1]})
		}
		return buildOf(info)
	}
	for want, b := range map[string]Build{
		"go1.26.1":          set(),
		"go1.26.1 amd64/v3": set("GOARCH", "amd64", "GOAMD64", "v3"),
		"go1.26.1 arm64/v8.0 0123456789ab+": set("GOARM64", "v8.0", "GOARCH", "arm64",
			"vcs.revision", "0123456789abcdef", "vcs.modified", "true"),
		"go1.26.1 riscv64 01": set("GOARCH", "riscv64", "vcs.revision", "01", "vcs.modified",
			"false"),
	} {
		if b.String() != want {
			t.Errorf("%q, want %q", b, want)
		}
	}
	if ThisBuild().Go == "" {
		t.Error("this program's build is unknown")
	}
}

// TestMixedBuilds: every node sees what the others were built from, and that they differ.
func TestMixedBuilds(t *testing.T) {
	simulated(t, func(t *testing.T) {
		another := "n2"
		c := newCluster(t, 3, func(cfg *Config) {
			cfg.Version, cfg.Build = "0.2.0", Build{"go1.26.1", "amd64/v1", "c1"}
			if cfg.ID == another {
				cfg.Build.Processor = "amd64/v3"
			}
		})
		for id, n := range c.nodes {
			eventually(t, id+" sees two builds", func() bool { return len(n.builds()) == 2 })
			eventually(t, id+" has warned", n.mixed.Load)
			for _, m := range n.Status().Members {
				want := "go1.26.1 amd64/v1 c1"
				if m.ID == another {
					want = "go1.26.1 amd64/v3 c1"
				}
				if m.Build != want {
					t.Errorf("%s shows %s with %q", id, m.ID, m.Build)
				}
			}
		}
		c.close(another)
		another = ""
		c.reopen("n2")
		for id, n := range c.nodes {
			eventually(t, id+" sees one build", func() bool {
				return len(n.builds()) == 1 && !n.mixed.Load()
			})
		}
	})
}
