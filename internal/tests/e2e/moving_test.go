// A client that knows one address, and is told to move before its node stops.

package e2e

import (
	"os"
	"slices"
	"testing"

	"github.com/coordd/coordd/internal/tests/tier"
	"github.com/coordd/coordd/internal/tests/wait"
)

// TestNodeRedisMoves restarts every node in turn under a node-redis with maintenance notifications,
// which does not retry: no request fails. Without notifications some do.
func TestNodeRedisMoves(t *testing.T) {
	tier.Check(t)
	if i := slices.IndexFunc(needNode, lacks); i >= 0 {
		t.Skipf("SKIPPED: %s not found", needNode[i])
	}
	ps := startProcesses(t, 3)
	run := func(kind string) *seeker {
		s := newSeeker(kind, "", nil, nodeProgram(kind)...)
		s.begin(t, append(os.Environ(), "COORDD_ADDRS="+ps[0].addr), s.note)
		return s
	}
	more := func(s *seeker) {
		t.Helper()
		before := s.count()
		wait.For(t, seekerLimit, "writes to go on", func() bool { return s.count() > before+200 })
	}
	s := run("redis-moving")
	more(s)
	for i, p := range ps {
		p.stop()
		more(s)
		p.start()
		caughtUp(t, p, ps[(i+1)%3].client())
	}
	s.finish(t, ps[0])
	if len(s.errs) > 0 {
		t.Errorf("%d requests failed: %q", len(s.errs), s.errs[0])
	}

	s = run("redis-still")
	more(s)
	ps[0].stop()
	wait.For(t, seekerLimit, "a request to fail without notifications", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.errs) > 0
	})
	ps[0].start()
	ps[0].waitReady()
	s.finish(t, ps[0])
}
