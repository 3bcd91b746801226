// Tests of zones and permanent learners as clients see them.

package server

import (
	"strings"
	"testing"
	"time"
)

func TestZonesAndLearners(t *testing.T) {
	n := start(t, func(c *Config) { c.Zone = "eu-1a" })
	n.fake.mu.Lock()
	members := n.fake.st.Members
	members[0].Zone = "eu-1a"
	members[1].Zone, members[1].Voter, members[1].Learner = "eu-1b", false, true
	members[2].RemoveIn = time.Minute
	n.fake.mu.Unlock()
	c := n.dial(t)
	const zone = "$17\r\navailability-zone\r\n$5\r\n"
	for _, test := range []struct {
		command string
		want    []string
	}{
		{"HELLO 2", []string{"*16\r\n", "$17\r\navailability_zone\r\n$5\r\neu-1a\r\n"}},
		{"INFO server", []string{"\r\navailability_zone:eu-1a\r\n"}},
		{"CONFIG GET availability-zone", []string{zone + "eu-1a\r\n"}},
		{"CONFIG SET availability-zone x", []string{"-ERR CONFIG SET failed", "immutable"}},
		{"CLUSTER SLOTS", []string{"*2\r\n" + zone + "eu-1a\r\n", "*2\r\n" + zone + "eu-1b\r\n"}},
		{"CLUSTER SHARDS", []string{"online\r\n" + zone + "eu-1a\r\n",
			"online\r\n" + zone + "eu-1b\r\n"}},
		{"RAFT MEMBERS", []string{zone + "eu-1b\r\n$15\r\nleader-priority\r\n:0\r\n$17\r\n" +
			"permanent-learner\r\n:1\r\n", "removed-in-seconds\r\n:60\r\n"}},
		{"INFO coordd", []string{"zone=eu-1b,priority=0,learner=true,removed_in=-1\r\n",
			"removed_in=60\r\n"}},
	} {
		got := c.call(strings.Fields(test.command)...)
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q lacks %q", test.command, got, want)
			}
		}
	}
}
