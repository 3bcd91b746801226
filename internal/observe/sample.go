package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coordd/coordd/internal/resp"
)

// Sample is a node and its cluster at one moment.
type Sample struct {
	AtMs    int64    `json:"at"` // Unix time
	Node    Node     `json:"node"`
	Members []Member `json:"members"`
	// Alone: no leader answered, and the node shows what it knows by itself.
	Alone  bool   `json:"alone"`
	Health Health `json:"health"`
	Counts Counts `json:"counts"`
	Rates  *Rates `json:"rates"` // nil in the first sample
	// Denied are the commands that the user may not run, so that something is not shown.
	Denied []string `json:"denied"`
	// Unanswered are the commands that the node does not run now, each with its reply: it does not
	// know its users before it has heard from a leader, or loads its data.
	Unanswered []string `json:"unanswered"`
}

// Counts are what the node holds now.
type Counts struct {
	Clients     int64 `json:"clients"`
	Blocked     int64 `json:"blocked"`
	Keys        int64 `json:"keys"`
	Expires     int64 `json:"expires"` // keys with a TTL
	Data        int64 `json:"data"`    // bytes
	MaxMemory   int64 `json:"maxMemory"`
	Resident    int64 `json:"resident"`
	SnapshotSec int64 `json:"snapshotAge"` // -1: there is none
	Saving      bool  `json:"saving"`
}

// Rates are what happened since the sample before, a second.
type Rates struct {
	Seconds  float64       `json:"seconds"`
	Commands float64       `json:"commands"` // by clients of this node
	Entries  float64       `json:"entries"`  // committed to the log, by all nodes
	Errors   float64       `json:"errors"`
	InBytes  float64       `json:"in"`
	OutBytes float64       `json:"out"`
	P50Us    float64       `json:"p50"` // median latency of the commands; 0: there were none
	P99Us    float64       `json:"p99"`
	Top      []CommandRate `json:"top"`
}

// CommandRate is the rate of one command.
type CommandRate struct {
	Name   string  `json:"name"`
	Calls  float64 `json:"calls"` // a second
	MeanUs float64 `json:"mean"`
	Failed float64 `json:"failed"` // a second
}

// topCommands are listed in Rates.
const topCommands = 8

// own are the commands by which an observer watches. They do not count as load.
var own = []string{"raft", "info", "latency", "client", "hello", "slowlog", "locks", "auth"}

func isOwn(command string) bool {
	name, _, _ := strings.Cut(command, "|")
	return slices.Contains(own, name)
}

// Sampler takes samples.
type Sampler struct {
	client *Client
	before counters
}

// NewSampler returns a sampler of the node that the client asks.
func NewSampler(c *Client) *Sampler { return &Sampler{client: c} }

// counters only grow, unless the node restarts or resets them.
type counters struct {
	at       time.Time
	commit   uint64
	info     map[string]string
	buckets  map[int64]int64 // calls by the longest duration of their bucket, µs
	commands map[string]commandCounters
}

type commandCounters struct{ calls, us, failed int64 }

// infoSections are those that a sample needs.
var infoSections = []string{"INFO", "server", "clients", "memory", "persistence", "stats",
	"commandstats", "keyspace", "coordd"}

// Next takes a sample. It fails if the user may not even see the node's state, or the connection
// fails.
func (s *Sampler) Next(ctx context.Context) (*Sample, error) {
	client, sample := s.client, &Sample{}
	node, err := client.Node(ctx)
	if client.password != "" && Loads(err) {
		// no password is known there yet, but a client on its machine sees the members without one
		client = NewClient(client.dial, "", "")
		defer client.Close()
		if n, failure := client.Node(ctx); failure == nil {
			node, err = n, sample.tolerate([]string{"AUTH"}, err)
		}
	}
	if err != nil {
		return nil, err
	}
	now := counters{at: time.Now(), commit: node.Commit}
	sample.AtMs, sample.Node = now.at.UnixMilli(), node
	ask := func(words ...string) (reply resp.Value) {
		if err == nil && len(sample.Unanswered) == 0 { // else it would keep this one waiting, too
			reply, err = client.Do(ctx, words...)
			err = sample.tolerate(words, err)
		}
		return reply
	}
	info := parseInfo(text(ask(infoSections...)))
	now.info = info
	now.commands = commandsIn(now.info)
	now.buckets = bucketsIn(ask("LATENCY", "HISTOGRAM"))
	if err != nil {
		return nil, err
	}
	sample.Members, sample.Alone, err = client.askMembers(ctx, node.Leader)
	if err = sample.tolerate([]string{"RAFT", "MEMBERS"}, err); err != nil {
		return nil, err
	}
	sample.fill(&now)
	if len(sample.Unanswered) > 0 { // the next rates would count from the node's start
		now = counters{}
	} else if !s.before.at.IsZero() {
		sample.Rates = rates(&s.before, &now)
	}
	s.before = now
	sample.Health = health(sample, info)
	return sample, nil
}

// tolerate notes that a command was answered with an error, unless that ends the session.
func (s *Sample) tolerate(words []string, err error) error {
	command := words[0]
	if command != "INFO" { // its words are sections
		command = strings.Join(words, " ")
	}
	switch {
	case Denied(err):
		s.Denied = append(s.Denied, command)
	case !SignedOut(err) && errors.As(err, new(ReplyError)):
		s.Unanswered = append(s.Unanswered, command+": "+err.Error())
	default:
		return err
	}
	return nil
}

// fill sets what INFO tells.
func (s *Sample) fill(now *counters) {
	n := func(name string) int64 { return infoNumber(now.info, name) }
	s.Node.Version, s.Node.UptimeSec = now.info["coordd_version"], n("uptime_in_seconds")
	if now.info["coordd_version"] == "" { // INFO was not answered
		s.Node.UptimeSec = -1
		for i := range s.Members {
			if m := &s.Members[i]; m.ID == s.Node.ID {
				s.Node.Version, s.Node.UptimeSec = m.Version, m.UptimeSec
			}
		}
	}
	s.Counts = Counts{Clients: n("connected_clients"), Blocked: n("blocked_clients"),
		Data: n("used_memory_dataset"), MaxMemory: n("maxmemory"),
		Resident: n("used_memory_rss"), SnapshotSec: -1, Saving: n("rdb_bgsave_in_progress") > 0}
	if saved := n("rdb_last_save_time"); saved > 0 {
		s.Counts.SnapshotSec = max(now.at.Unix()-saved, 0)
	}
	for name, value := range now.info {
		if digits, ok := strings.CutPrefix(name, "db"); ok && digits != "" {
			var keys, expires int64
			if _, err := fmt.Sscanf(value, "keys=%d,expires=%d", &keys, &expires); err == nil {
				s.Counts.Keys += keys
				s.Counts.Expires += expires
			}
		}
	}
}

func infoNumber(info map[string]string, name string) int64 {
	n, _ := strconv.ParseInt(info[name], 10, 64)
	return n
}

// commandsIn reads lines like cmdstat_get:calls=2,usec=10,usec_per_call=5.00,rejected_calls=0,
// failed_calls=0.
func commandsIn(info map[string]string) map[string]commandCounters {
	all := map[string]commandCounters{}
	for name, value := range info {
		command, ok := strings.CutPrefix(name, "cmdstat_")
		if !ok || isOwn(command) {
			continue
		}
		var c commandCounters
		for field := range strings.SplitSeq(value, ",") {
			key, number, _ := strings.Cut(field, "=")
			n, _ := strconv.ParseInt(number, 10, 64)
			switch key {
			case "calls":
				c.calls = n
			case "usec":
				c.us = n
			case "failed_calls":
				c.failed += n
			case "rejected_calls":
				c.failed += n
			}
		}
		all[command] = c
	}
	return all
}

// bucketsIn reads LATENCY HISTOGRAM, whose counts are cumulative.
func bucketsIn(v resp.Value) map[int64]int64 {
	buckets := map[int64]int64{}
	for command, of := range fields(v) {
		if isOwn(command) {
			continue
		}
		before := int64(0)
		for pair := range slices.Chunk(fields(of)["histogram_usec"].Elems, 2) {
			calls := number(pair[1])
			buckets[number(pair[0])] += calls - before
			before = calls
		}
	}
	return buckets
}

// rates compares two readings of the counters.
func rates(before, now *counters) *Rates {
	seconds := now.at.Sub(before.at).Seconds()
	per := func(n int64) float64 { return max(float64(n), 0) / seconds } // negative: a restart
	field := func(name string) float64 {
		return per(infoNumber(now.info, name) - infoNumber(before.info, name))
	}
	r := &Rates{Seconds: seconds, Entries: per(int64(now.commit) - int64(before.commit)),
		Errors: field("total_error_replies"), InBytes: field("total_net_input_bytes"),
		OutBytes: field("total_net_output_bytes")}
	for name, c := range now.commands {
		b := before.commands[name]
		calls := c.calls - b.calls
		if calls <= 0 {
			continue
		}
		r.Commands += per(calls)
		r.Top = append(r.Top, CommandRate{Name: name, Calls: per(calls),
			MeanUs: float64(c.us-b.us) / float64(calls), Failed: per(c.failed - b.failed)})
	}
	slices.SortFunc(r.Top, func(a, b CommandRate) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Name, b.Name))
	})
	r.Top = r.Top[:min(len(r.Top), topCommands)]
	r.P50Us = percentile(before.buckets, now.buckets, 0.50)
	r.P99Us = percentile(before.buckets, now.buckets, 0.99)
	return r
}

// percentile returns the duration, µs, that a share of the calls between two readings did not
// exceed. A bucket is a power of two; within it the calls count as evenly spread. 0: there were no
// calls.
func percentile(before, now map[int64]int64, share float64) float64 {
	type bucket struct{ us, calls int64 }
	var all []bucket
	total := int64(0)
	for us, calls := range now {
		if n := calls - before[us]; n > 0 {
			all = append(all, bucket{us, n})
			total += n
		}
	}
	slices.SortFunc(all, func(a, b bucket) int { return cmp.Compare(a.us, b.us) })
	want := share * float64(total)
	for _, b := range all {
		if float64(b.calls) >= want {
			low := float64(b.us) / 2
			return low + (float64(b.us)-low)*want/float64(b.calls)
		}
		want -= float64(b.calls)
	}
	return 0
}
