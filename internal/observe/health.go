package observe

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Levels of Health.
const (
	OK   = "ok"
	Warn = "warn" // somebody should look, the cluster serves
	Down = "down" // this node or the cluster does not serve
)

// Problem is what is wrong, and the next act against it; an empty one if none is needed.
type Problem struct {
	Text string `json:"text"`
	Next string `json:"next"`
}

// Health says at once whether the cluster is well.
type Health struct {
	Level string `json:"level"`
	Problem
	// Problems are the others, the worst first.
	Problems []Problem `json:"problems"`
}

// From where a member or a resource is a problem.
const (
	silent       = 3 * time.Second // two reports of an idle member are a second apart
	behind       = 1000            // entries; from there /readyz reports a node as not ready
	memoryShare  = 0.9             // share of maxmemory
	expiringDays = 14              // before a certificate expires
)

// stateDiffers is Member.State of one whose state is not the leader's.
const stateDiffers = "differs"

// health judges a sample.
func health(s *Sample, info map[string]string) Health {
	down, warn := s.serving(), s.memberProblems()
	if s.Node.Role == "removed" { // the others no longer answer it
		warn = nil
	}
	if s.Alone {
		down = append(down,
			Problem{"The members are listed as " + s.Node.ID + " last knew them", ""})
	}
	warn = append(warn, resources(s, info)...)
	voters, _ := s.voters()
	switch {
	case len(down) > 0:
		return Health{Down, down[0], append(down[1:], warn...)}
	case len(warn) > 0:
		return Health{Warn, warn[0], warn[1:]}
	case voters == 1:
		return Health{OK, Problem{"Serving, as a single node", ""}, nil}
	}
	return Health{OK, Problem{fmt.Sprintf("All %d members are well, %s leads", len(s.Members),
		s.Node.Leader), ""}, nil}
}

// voters counts the voters, and those of them that are away, or store nothing.
func (s *Sample) voters() (all, gone int) {
	for i := range s.Members {
		if m := &s.Members[i]; m.votes() {
			all++
			if s.away(m) || m.Trouble != "" {
				gone++
			}
		}
	}
	return all, gone
}

func (m *Member) votes() bool { return m.Role == "voter" || m.Role == "leader" }

// Away reports whether a member does not answer. A process that hangs keeps its connections, so it
// counts when it was last heard from too; negative: never.
func Away(connected bool, contact time.Duration) bool {
	return !connected || contact > silent || contact < 0
}

// away is Away for whose view this is. The leader's connection may be lost for a moment.
func (s *Sample) away(m *Member) bool {
	return Away(!s.Alone || !m.cutOff(), time.Duration(m.ContactMs)*time.Millisecond)
}

// cutOff reports whether whose view this is has no connection to the member.
func (m *Member) cutOff() bool { return m.To != "" && m.To != "up" }

// serving returns why the asked node, or the cluster, does not serve.
func (s *Sample) serving() []Problem {
	n := &s.Node
	switch {
	case n.Role == "removed" || n.Role == "joining":
		return []Problem{{n.ID + ": " + n.State, n.Next}}
	case n.Leader == "":
		return []Problem{{"No leader: commands wait, and fail with CLUSTERDOWN", n.Next}}
	case n.State != "ready" && n.State != "":
		return []Problem{{n.ID + " is not ready: " + n.State, n.Next}}
	case s.Alone:
		return []Problem{{"The leader " + n.Leader + " does not answer",
			"wait for an election; if that takes more than a few seconds, look at " + n.Leader}}
	}
	return nil
}

// memberProblems returns what is wrong with the members, as the leader sees it, or as the asked
// node does.
func (s *Sample) memberProblems() (all []Problem) {
	builds := map[string]bool{}
	for i := range s.Members {
		m := &s.Members[i]
		if m.Build != "" {
			builds[m.Version+" "+m.Build] = true
		}
		if m.State == stateDiffers {
			all = append(all, Problem{"The state of " + m.ID + " is not the leader's: one of " +
				"them is wrong", "operations.md, A node whose state is wrong"})
		}
		if p := s.memberProblem(m); p.Text != "" {
			all = append(all, p)
		}
	}
	voters, gone := s.voters()
	if quorum := voters/2 + 1; !s.Alone && gone > 0 && voters-gone == quorum {
		all = append(all, Problem{"One more failure stops the cluster: " + strconv.Itoa(quorum) +
			" of " + strconv.Itoa(voters) + " voters are left", "restart no other voter"})
	}
	if len(builds) > 1 {
		all = append(all, Problem{fmt.Sprintf("The members run %d different builds of coordd",
			len(builds)), "finish the upgrade: operations.md, Restarting and upgrading"})
	}
	return all
}

// memberProblem returns whether a member can be reached and has caught up.
func (s *Sample) memberProblem(m *Member) Problem {
	switch {
	case s.away(m):
		whom, next := "the leader", "start it, or mend the network to it. If its disk is lost: "+
			"operations.md, Replacing a node that lost its disk"
		if s.Alone { // the verdict has the act
			whom, next = s.Node.ID, ""
		}
		text := m.ID + " does not answer " + whom + since(m.ContactMs)
		if m.cutOff() {
			text += ": " + m.To
		}
		return Problem{text, next}
	case m.Trouble != "" && m.ID != s.Node.ID: // it answers, and may be few entries behind
		return Problem{m.ID + ": " + m.Trouble, "make room on the disk of its --data-dir, or " +
			"mend it: operations.md, Disk space"}
	case m.Behind > behind:
		return Problem{fmt.Sprintf("%s is %d entries behind", m.ID, m.Behind),
			"wait; if it does not catch up, look at its disk and its network"}
	}
	return Problem{}
}

// Spare returns why no voter may be stopped now; empty: the cluster can do without any one of them,
// if it ever can. That needs a proof: each has answered a question that the leader asked within the
// last span, in which nobody has stopped one, and has told how far its log is.
func (s *Sample) Spare(span time.Duration) string {
	if down := s.serving(); len(down) > 0 {
		return down[0].Text
	}
	if left := s.Node.Commit - min(s.Node.Applied, s.Node.Commit); left > behind {
		return fmt.Sprintf("%s has %d entries to apply", s.Node.ID, left)
	}
	if voters, _ := s.voters(); voters == 0 {
		return "the members are not known: " + strings.Join(s.Unanswered, "; ")
	}
	unproven := ""
	for i := range s.Members {
		m := &s.Members[i]
		if !m.votes() {
			continue
		}
		p := s.memberProblem(m)
		switch {
		case p.Text != "":
			return p.Text
		case m.cutOff():
			return "the leader does not reach " + m.ID + ": " + m.To
		case m.From != "" && m.From != "up":
			return m.ID + " does not reach the leader: " + m.From
		case m.ContactMs > span.Milliseconds(), m.Behind < 0: // a connection is no answer
			unproven = m.ID + " has not answered the leader since it was asked"
		}
	}
	return unproven
}

// since says for how long, if that is known.
func since(ms int64) string {
	if ms < 0 {
		return ""
	}
	return " for " + (time.Duration(ms) * time.Millisecond).Round(time.Second).String()
}

// resources returns the problems of the node itself.
func resources(s *Sample, info map[string]string) (warn []Problem) {
	c := &s.Counts
	if c.MaxMemory > 0 && float64(c.Data) > memoryShare*float64(c.MaxMemory) {
		warn = append(warn, Problem{fmt.Sprintf("The data is at %d %% of maxmemory",
			100*c.Data/c.MaxMemory), "raise maxmemory, or delete keys: operations.md, A limit " +
			"for the data"})
	}
	if times := info["request_work"]; times != "" && times != "1" {
		warn = append(warn, Problem{"One request may do " + times + " times the usual work, and " +
			"hold up every node for as long", "CONFIG SET coordd-request-work 1, once the " +
			"maintenance is over"})
	}
	if info["snapshot_trouble"] != "" {
		warn = append(warn, Problem{"The newest snapshot of this node cannot be read back: its " +
			"log grows", "operations.md, A snapshot that cannot be read"})
	} else if info["rdb_last_bgsave_status"] == "err" {
		warn = append(warn, Problem{"The newest snapshot that was asked for failed",
			"look in the node's log, and at the room on its disk"})
	}
	for i := 0; ; i++ {
		line, ok := info["certificate"+strconv.Itoa(i)]
		if !ok {
			return warn
		}
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "name="), ",")
		_, days, _ := strings.Cut(rest, "days_left=")
		days, _, _ = strings.Cut(days, ",")
		if n, err := strconv.Atoi(days); err == nil && n < expiringDays {
			p := Problem{fmt.Sprintf("The %s certificate expires in %d days", name, n),
				"put a new one in its file: security.md, Certificates change"}
			if own, ok := strings.CutSuffix(name, "-authorities"); ok {
				p = Problem{fmt.Sprintf("An authority of %s certificates that are in use expires "+
					"in %d days", own, n), "have a new one beside it in its file, then replace " +
					"the certificates that it signed: security.md, Certificates change"}
			}
			warn = append(warn, p)
		}
	}
}
