package observe

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Connection is a client.
type Connection struct {
	ID      int64  `json:"id"`
	Node    string `json:"node"` // empty: the one that was asked, which has an older release
	Addr    string `json:"addr"`
	Name    string `json:"name"`
	User    string `json:"user"`
	Library string `json:"library"` // with its version; empty: it does not say
	Command string `json:"command"` // the newest
	AgeSec  int64  `json:"age"`
	IdleSec int64  `json:"idle"`
	Flags   string `json:"flags"`
	Bytes   int64  `json:"bytes"` // memory that it takes
}

// Library counts the connections of a client library.
type Library struct {
	Name        string `json:"name"`
	Connections int    `json:"connections"`
}

// Connections are clients of all nodes.
type Connections struct {
	Total     int          `json:"total"`
	Matching  int          `json:"matching"`
	Libraries []Library    `json:"libraries"` // all of them, the most used first
	Shown     []Connection `json:"shown"`     // the largest that match, the largest first
}

// Connections returns at most most clients, those that contain word in a field if one is given.
func (c *Client) Connections(ctx context.Context, word string, most int) (*Connections, error) {
	v, err := c.Do(ctx, "CLIENT", "LIST")
	if err != nil {
		return nil, err
	}
	found := &Connections{Libraries: []Library{}, Shown: []Connection{}}
	libraries := map[string]int{}
	word = strings.ToLower(word)
	for line := range strings.Lines(text(v)) {
		f := parseConnection(strings.TrimSuffix(line, "\n"))
		found.Total++
		libraries[f.Library]++
		if word == "" || f.contains(word) {
			found.Matching++
			found.Shown = append(found.Shown, f)
		}
	}
	slices.SortStableFunc(found.Shown, func(a, b Connection) int {
		return cmp.Compare(b.Bytes, a.Bytes)
	})
	found.Shown = found.Shown[:min(len(found.Shown), most)]
	for name, n := range libraries {
		found.Libraries = append(found.Libraries, Library{name, n})
	}
	slices.SortFunc(found.Libraries, func(a, b Library) int {
		return cmp.Or(cmp.Compare(b.Connections, a.Connections), cmp.Compare(a.Name, b.Name))
	})
	return found, nil
}

// parseConnection reads a line of CLIENT LIST.
func parseConnection(line string) Connection {
	m := map[string]string{}
	for field := range strings.SplitSeq(line, " ") {
		name, value, _ := strings.Cut(field, "=")
		m[name] = value
	}
	n := func(name string) int64 {
		n, _ := strconv.ParseInt(m[name], 10, 64)
		return n
	}
	library := m["lib-name"]
	if library != "" && m["lib-ver"] != "" {
		library += " " + m["lib-ver"]
	}
	return Connection{ID: n("id"), Node: m["node"], Addr: m["addr"], Name: Show(m["name"]),
		User: Show(m["user"]), Library: Show(library), Command: m["cmd"], AgeSec: n("age"),
		IdleSec: n("idle"), Flags: m["flags"], Bytes: n("tot-mem")}
}

func (f *Connection) contains(word string) bool {
	return slices.ContainsFunc([]string{f.Node, f.Addr, f.Name, f.User, f.Library, f.Command},
		func(s string) bool { return strings.Contains(strings.ToLower(s), word) })
}

// SlowCall is an entry of the slow log.
type SlowCall struct {
	ID     int64  `json:"id"`
	AtMs   int64  `json:"at"` // Unix time
	TookUs int64  `json:"took"`
	Call   string `json:"call"` // the words, as far as the log keeps them
	Addr   string `json:"addr"`
	Name   string `json:"name"`
}

// SlowCalls returns the newest slow calls of the node's clients.
func (c *Client) SlowCalls(ctx context.Context, most int) ([]SlowCall, error) {
	v, err := c.Do(ctx, "SLOWLOG", "GET", strconv.Itoa(most))
	if err != nil {
		return nil, err
	}
	calls := []SlowCall{}
	for _, e := range v.Elems {
		if len(e.Elems) < 6 {
			continue
		}
		var words []string
		for _, w := range e.Elems[3].Elems {
			words = append(words, Show(w.Text))
		}
		calls = append(calls, SlowCall{ID: number(e.Elems[0]),
			AtMs:   time.Unix(number(e.Elems[1]), 0).UnixMilli(),
			TookUs: number(e.Elems[2]), Call: strings.Join(words, " "),
			Addr: e.Elems[4].Text, Name: Show(e.Elems[5].Text)})
	}
	return calls, nil
}
