package node

import (
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/cluster/membership"
)

// TestToLead: a voter that hangs keeps its connections, and is missing all the same. One whose
// place a node of another cluster has does not come by being started.
func TestToLead(t *testing.T) {
	own := membership.Member{ID: "n1", Voter: true, Connected: true}
	with := func(id string, connected bool, contact time.Duration) membership.Member {
		return membership.Member{ID: id, Voter: true, Connected: connected, LastContact: contact}
	}
	well, down := with("n2", true, time.Second), with("n3", false, time.Second)
	hangs, new := with("n3", true, 40*time.Second), with("n3", true, -1)
	other := func(id string) membership.Member {
		return membership.Member{ID: id, Voter: true, LastContact: -1, Elsewhere: true}
	}
	full := with("n2", true, time.Second)
	full.LogTrouble = "it cannot store log entries: no space left on device"
	for _, test := range []struct {
		members []membership.Member
		says    string
	}{
		{[]membership.Member{own, well, hangs}, "a majority is reachable"},
		{[]membership.Member{own, well, down}, "a majority is reachable"},
		{[]membership.Member{own, with("n2", true, time.Minute), hangs}, "start 1 of n2, n3 on"},
		{[]membership.Member{own, with("n2", true, time.Minute), down}, "start 1 of n2, n3 on"},
		{[]membership.Member{own, new}, "start 1 of n3 on"},
		{[]membership.Member{own, other("n2"), other("n3")}, "n2, n3 answer for another cluster"},
		{[]membership.Member{own, other("n2"), down}, "start 1 of n2, n3 on"},
		{[]membership.Member{own, well, other("n3")}, "a majority is reachable"},
		{[]membership.Member{own, full, with("n3", true, time.Second)}, "a majority is reachable"},
		{[]membership.Member{own, full, down}, "make room on the disks of n2"},
		{[]membership.Member{own, with("n2", false, time.Second), down}, "start 1 of n2, n3 on"},
	} {
		if got := toLead(test.members); !strings.HasPrefix(got, test.says) {
			t.Errorf("%+v: %q, want %q", test.members, got, test.says)
		}
	}
}
