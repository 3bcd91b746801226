package observe

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/internal/resp"
)

// Node is what the asked node says of itself.
type Node struct {
	ID        string `json:"id"`
	Role      string `json:"role"`  // leader, follower, candidate, joining or removed
	State     string `json:"state"` // ready, or why not
	Next      string `json:"next"`  // the next act if it is not; empty: none is known
	Leader    string `json:"leader"`
	Term      uint64 `json:"term"`
	Commit    uint64 `json:"commit"`
	Applied   uint64 `json:"applied"`
	Snapshot  uint64 `json:"snapshot"` // log index of the newest one
	Level     uint64 `json:"level"`
	Version   string `json:"version"`
	UptimeSec int64  `json:"uptime"`
}

// Member is a member of the cluster. Numbers are negative if they are unknown.
type Member struct {
	ID        string `json:"id"`
	Role      string `json:"role"` // leader, voter or learner
	Client    string `json:"client"`
	Peer      string `json:"peer"`
	Behind    int64  `json:"behind"`  // entries
	ContactMs int64  `json:"contact"` // since the leader heard from it, or whose view this is
	Version   string `json:"version"`
	UptimeSec int64  `json:"uptime"`
	Permanent bool   `json:"permanent"` // a learner that never becomes a voter
	Zone      string `json:"zone"`      // empty: none is configured
	Build     string `json:"build"`     // what its binary was built from; empty: unknown
	State     string `json:"state"`     // equal to the leader's, or differs; empty: not compared yet
	Trouble   string `json:"trouble"`   // why it stores no entries; empty: it does, or unknown
	// Connections between it and whose view this is: up, or why not; empty: it is that node itself.
	To   string `json:"to"`
	From string `json:"from"`
}

// Node asks for the node's own state, which it knows without waiting.
func (c *Client) Node(ctx context.Context) (Node, error) {
	v, err := c.Do(ctx, "RAFT", "STATUS")
	if err != nil {
		return Node{}, err
	}
	m := fields(v)
	return Node{ID: m["id"].Text, Role: m["role"].Text, State: m["state"].Text,
		Next: m["next"].Text, Leader: m["leader"].Text, Term: count(m["term"]),
		Commit:  count(m["commit"]),
		Applied: count(m["applied"]), Snapshot: count(m["snapshot"]),
		Level: count(m["feature-level"])}, nil
}

// membersWait is how long the leader's view of the members may take. A leader that has just died
// does not answer.
const membersWait = 700 * time.Millisecond

// askMembers asks for the members as the leader knows them. If it does not answer, or there is none
// (alone), they are as the asked node knows them, in a list that may be old.
func (c *Client) askMembers(ctx context.Context, leader string) (members []Member, alone bool,
	err error) {
	if leader != "" {
		ctx, cancel := context.WithTimeout(ctx, membersWait)
		members, alone, err = c.listMembers(ctx, "RAFT", "MEMBERS")
		cancel()
	}
	if leader == "" || errors.Is(err, context.DeadlineExceeded) {
		members, err = c.OwnMembers(ctx)
		alone = true
	}
	return members, alone, err
}

// OwnMembers asks for the members as the node itself knows them, which it does without waiting.
func (c *Client) OwnMembers(ctx context.Context) ([]Member, error) {
	members, _, err := c.listMembers(ctx, "RAFT", "MEMBERS", "LOCAL")
	return members, err
}

func (c *Client) listMembers(ctx context.Context, words ...string) (members []Member, alone bool,
	err error) {
	v, err := c.Do(ctx, words...)
	if err != nil {
		return nil, false, err
	}
	for _, e := range v.Elems {
		m := fields(e)
		alone = alone || m["source"].Text != "" && m["source"].Text != "leader"
		members = append(members, Member{ID: m["id"].Text, Role: m["role"].Text,
			Client: address(m["client-address"].Text, m["tls-address"].Text),
			Peer:   m["peer-address"].Text,
			Behind: number(m["entries-behind"]), ContactMs: number(m["last-contact-ms"]),
			Version: m["version"].Text, UptimeSec: number(m["uptime-seconds"]),
			Permanent: number(m["permanent-learner"]) == 1,
			Zone:      m["availability-zone"].Text, Build: m["build"].Text, State: m["state"].Text,
			Trouble: m["log-trouble"].Text, To: m["connection-to"].Text,
			From: m["connection-from"].Text})
	}
	return members, alone, nil
}

// OverTLS ends the address for clients of a member that serves them over TLS alone.
const OverTLS = " (TLS)"

// address returns where clients reach a member.
func address(plain, secure string) string {
	if plain == "" && secure != "" {
		return secure + OverTLS
	}
	return plain
}

func number(v resp.Value) int64 {
	n, err := strconv.ParseInt(v.Text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func count(v resp.Value) uint64 { return uint64(max(number(v), 0)) }

// parseInfo returns the fields of INFO.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		if ok && !strings.HasPrefix(line, "#") {
			info[name] = value
		}
	}
	return info
}
