package observe

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/resp"
)

func TestShow(t *testing.T) {
	for typed, want := range map[string]string{
		"lock:1":                 "lock:1",
		"größe 日本":               "größe 日本",
		"a\x1b[31m\r\n\u202eb":   `a\u{1b}[31m\u{d}\u{a}\u{202e}b`,
		"\xff\x00":               `\xff\u{0}`,
		`\xff`:                   `\\xff`,
		strings.Repeat("é", 161): strings.Repeat("é", 160) + "… (322 bytes)",
	} {
		if got := Show(typed); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}

// A reply that would be too large is asked for in smaller parts: somebody has very long keys.
func TestEntriesWithLongKeys(t *testing.T) {
	asked := ""
	c := NewClient(func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			in := resp.NewReaderLimits(bufio.NewReader(theirs), limits)
			for {
				v, err := in.Value()
				if err != nil {
					return
				}
				reply := "*2\r\n$1\r\n0\r\n*0\r\n"
				if v.Elems[0].Text != "LOCKS" {
					reply = "+OK\r\n"
				} else if asked += v.Elems[5].Text + " "; len(v.Elems[5].Text) > 1 {
					reply = "-" + string(commands.ErrReplySize) + "\r\n"
				}
				_, _ = theirs.Write([]byte(reply))
			}
		}()
		return ours, nil
	}, "", "")
	defer c.Close()
	_, err := c.Entries(t.Context(), Query{Group: Windows, Most: 10})
	if err != nil || asked != "100 6 " {
		t.Errorf("asked for %s: %v", asked, err)
	}
}

func TestPercentile(t *testing.T) {
	before := map[int64]int64{1: 10, 4: 5}
	now := map[int64]int64{1: 10, 4: 105, 1024: 1}
	if p := percentile(before, now, 0.5); p < 2 || p > 4 {
		t.Errorf("the median is %v", p)
	}
	if p := percentile(before, now, 1); p != 1024 {
		t.Errorf("the longest is %v", p)
	}
	if p := percentile(now, now, 0.5); p != 0 {
		t.Errorf("without calls: %v", p)
	}
	if p := percentile(now, before, 0.5); p != 0 { // CONFIG RESETSTAT
		t.Errorf("after a reset: %v", p)
	}
}

func TestHealth(t *testing.T) {
	well := func() *Sample {
		return &Sample{Node: Node{ID: "n1", Role: "leader", State: "ready", Leader: "n1"},
			Members: []Member{{ID: "n1", Role: "leader"}, {ID: "n2", Role: "voter"},
				{ID: "n3", Role: "voter"}, {ID: "n4", Role: "learner"}}}
	}
	info := map[string]string{}
	for name, c := range map[string]struct {
		change      func(*Sample)
		level, says string
	}{
		"well": {func(*Sample) {}, OK, "All 4 members are well, n1 leads"},
		"silent": {func(s *Sample) { s.Members[1].ContactMs = 61_000 }, Warn,
			"n2 does not answer the leader for 1m1s"},
		"the last failure": {func(s *Sample) { s.Members[1].ContactMs = -1 }, Warn,
			"One more failure stops the cluster: 2 of 3 voters are left"},
		"a learner": {func(s *Sample) { s.Members[3].Behind = 2000 }, Warn,
			"n4 is 2000 entries behind"},
		"a full disk": {func(s *Sample) { s.Members[2].Trouble = "no space left" }, Warn,
			"n3: no space left make room"},
		"a full disk is a failure": {func(s *Sample) { s.Members[2].Trouble = "no space left" },
			Warn, "One more failure stops the cluster: 2 of 3 voters are left"},
		"a full disk of this node": {func(s *Sample) {
			s.Node.State, s.Members[0].Trouble = "no space left", "no space left"
		}, Down, "n1 is not ready: no space left } {One more failure"},
		"a wrong state": {func(s *Sample) { s.Members[1].State = "differs" }, Warn,
			"The state of n2 is not the leader's"},
		"another build": {func(s *Sample) {
			s.Members[0].Build, s.Members[1].Build, s.Members[2].Build = "a", "b", "a"
		}, Warn, "The members run 2 different builds"},
		"one build": {func(s *Sample) {
			s.Members[0].Build, s.Members[1].Build = "a", "a"
		}, OK, "All 4 members are well"},
		"no leader": {func(s *Sample) {
			s.Node.Leader, s.Node.Next, s.Alone = "", "start 1 of n2, n3", true
		}, Down, "CLUSTERDOWN start 1 of n2, n3"},
		"why": {func(s *Sample) {
			s.Node.Leader, s.Alone = "", true
			s.Members[1].ContactMs, s.Members[1].To = -1, "connection refused"
		}, Down, "n2 does not answer n1: connection refused"},
		"an old list": {func(s *Sample) { s.Node.Role, s.Alone = "removed", true }, Down,
			"The members are listed as n1 last knew them"},
		"a leader that is dead": {func(s *Sample) { s.Alone = true }, Down,
			"The leader n1 does not answer"},
		"not ready": {func(s *Sample) { s.Node.State = "the disk hangs" }, Down,
			"n1 is not ready: the disk hangs"},
		"removed": {func(s *Sample) { s.Node.Role, s.Node.State = "removed", "gone" }, Down,
			"n1: gone"},
		"memory": {func(s *Sample) { s.Counts = Counts{Data: 95, MaxMemory: 100} }, Warn,
			"95 % of maxmemory"},
		"a snapshot": {func(*Sample) { info["snapshot_trouble"] = "the snapshot of entry 7 …" },
			Warn, "cannot be read back: its log grows"},
		"a certificate": {func(*Sample) {
			info["certificate0"] = "name=client,expires=1,days_left=3,last_reload=ok"
		}, Warn, "The client certificate expires in 3 days"},
		"an authority": {func(*Sample) {
			info["certificate0"] = "name=client-authorities,expires=1,days_left=3,last_reload=ok"
		}, Warn, "have a new one beside it in its file, then replace the certificates"},
	} {
		clear(info)
		s := well()
		c.change(s)
		h := health(s, info)
		all := fmt.Sprint(append([]Problem{h.Problem}, h.Problems...))
		if h.Level != c.level || !strings.Contains(all, c.says) {
			t.Errorf("%s: %+v", name, h)
		}
	}
}

func TestSpare(t *testing.T) {
	for says, change := range map[string]func(*Sample){
		"":                    func(*Sample) {},
		"n2 does not":         func(s *Sample) { s.Members[1].ContactMs = 61_000 },
		"n2 is 2000":          func(s *Sample) { s.Members[1].Behind = 2000 },
		"n1 has 5000":         func(s *Sample) { s.Node.Commit, s.Node.Applied = 6000, 1000 },
		"No leader":           func(s *Sample) { s.Node.Leader = "" },
		"n1 is not ready":     func(s *Sample) { s.Node.State = "LOADING" },
		"The leader n1":       func(s *Sample) { s.Alone = true },
		"n1: gone":            func(s *Sample) { s.Node.Role, s.Node.State = "joining", "gone" },
		"n2 has not":          func(s *Sample) { s.Members[1].ContactMs = 700 },
		"n2: no space":        func(s *Sample) { s.Members[1].Trouble = "no space left" },
		"n2 has not answered": func(s *Sample) { s.Members[1].Behind = -1 },
		"the leader does":     func(s *Sample) { s.Members[1].To = "EOF" },
		"n2 does not reach":   func(s *Sample) { s.Members[1].From = "down" },
		"the members are": func(s *Sample) {
			s.Members, s.Unanswered = nil, []string{"RAFT MEMBERS: CLUSTERDOWN"}
		},
	} {
		s := &Sample{Node: Node{ID: "n1", Role: "leader", State: "ready", Leader: "n1"},
			Members: []Member{{ID: "n1", Role: "leader"},
				{ID: "n2", Role: "voter", ContactMs: 600, To: "up", From: "up"},
				{ID: "n3", Role: "learner", ContactMs: -1}}}
		change(s)
		got := s.Spare(600 * time.Millisecond)
		if !strings.HasPrefix(got, says) || says == "" && got != "" {
			t.Errorf("%q, want %q", got, says)
		}
	}
}

func TestParseConnection(t *testing.T) {
	c := parseConnection("id=7 addr=10.0.0.1:5 laddr=x fd=8 name=a=b age=3 idle=2 flags=N " +
		"tot-mem=99 cmd=client|list user=me lib-name=go-redis lib-ver=9.23")
	if c.ID != 7 || c.Name != "a=b" || c.Library != "go-redis 9.23" || c.Command != "client|list" ||
		c.User != "me" || c.Bytes != 99 || !c.contains("10.0.0") || c.contains("redisson") {
		t.Errorf("%+v", c)
	}
}
