package server

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
)

// TestInfoHasTheFieldsOfRedis: what a real server's INFO shows is shown here, or is a field that
// docs/compatibility.md names with a reason, and no field is both.
func TestInfoHasTheFieldsOfRedis(t *testing.T) {
	plainOnly(t)
	real := &client{Conn: commandtest.DialRedis(t), t: t}
	own := start(t, nil).dial(t)
	doc, err := os.ReadFile("../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(doc), "\n## Fields of INFO that are not there\n")
	list, _, _ = strings.Cut(list, "\n## ")
	missing := map[string]bool{}
	for _, row := range strings.Split(list, "\n| `")[1:] {
		names, _, _ := strings.Cut(row, "` | ") // the reason follows
		for name := range strings.SplitSeq(names, "`, `") {
			missing[name] = true
		}
	}
	counted := regexp.MustCompile(`^(cmdstat|latency_percentiles_usec|errorstat)_`)
	fields := func(c *client) map[string]bool {
		c.call("SET", "k", "v")
		all := map[string]bool{}
		for line := range strings.SplitSeq(c.call("INFO", "everything"), "\r\n") {
			name, _, ok := strings.Cut(line, ":")
			if ok && !counted.MatchString(name) {
				all[name] = true
			}
		}
		return all
	}
	theirs, ours := fields(real), fields(own)
	if len(theirs) < 150 || len(missing) < 40 {
		t.Fatalf("%d fields of Redis, %d in the document", len(theirs), len(missing))
	}
	for name := range theirs {
		if ours[name] == missing[name] {
			t.Errorf("%s: shown %v, documented as missing %v", name, ours[name], missing[name])
		}
	}
	for name := range missing {
		if !theirs[name] {
			t.Errorf("Redis has no field %s", name)
		}
	}
}

// How far other members are, only the leader hears: a follower shows nothing old.
func TestMatchOfMembers(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	match := regexp.MustCompile(`member\d:id=(\w+),.*,match=(-?\d+),`)
	for role, want := range map[string]string{"leader": "n1 0, n2 100, n3 90, ",
		"follower": "n1 0, n2 -1, n3 -1, ", "candidate": "n1 0, n2 -1, n3 -1, "} {
		n.fake.set(func() { n.fake.st.Role = role })
		got := ""
		for _, m := range match.FindAllStringSubmatch(c.call("INFO", "coordd"), -1) {
			got += m[1] + " " + m[2] + ", "
		}
		if got != want {
			t.Errorf("%s: %s, want %s", role, got, want)
		}
	}
}
