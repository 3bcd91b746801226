// What PUBSUB counts: the subscriptions of all nodes. Each node is asked for its own; one that does
// not answer in time is left out, as are those of older releases. docs/adr/0042 says why, and what
// cluster clients see, which ask several nodes and add up.

package server

import (
	"bytes"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/resp"
)

const errManyThere commands.Error = "ERR the channels of another node exceed 4 MiB: ask with a " +
	"pattern"

// Questions of other nodes: the first word. Then come a pattern or nothing, names, or nothing.
const (
	askChannels      = "channels"
	askShardChannels = "shardchannels"
	askNumSub        = "numsub"
	askShardNumSub   = "shardnumsub"
	askPatterns      = "patterns"
)

// pubsubView is what a PUBSUB command counts.
type pubsubView struct {
	none   bool         // nothing: the leader counts for this node
	others []resp.Value // the other nodes' answers
	sums   []int        // subscribers of each channel on all other nodes; nil: none
	err    error
}

// isClusterReplica reports whether a cluster client sees this node as a replica. Such a client asks
// the master, or all nodes, and adds up: the master has counted what this node would.
func (s *session) isClusterReplica() bool {
	as := s.srv.cfg.PresentAs
	if as == PresentCluster || as == PresentReplicated && s.stale {
		return s.srv.backend.Role() != "leader"
	}
	return false
}

// askOthers has the next PUBSUB command count the subscriptions of all nodes. The client sees
// earlier replies while it waits.
func (s *session) askOthers(words ...[]byte) {
	s.mayWait()
	v := s.pubsubSeen
	v.others = nil
	if v.none || !s.srv.backend.HasOthers() {
		return
	}
	question := resp.AppendCall(nil, words)
	if !s.inExec && s.send() != nil {
		s.quit = true
		return
	}
	for _, answer := range s.srv.backend.AskOthers(question) {
		a, err := resp.NewReader(bytes.NewReader(answer)).Value()
		switch {
		case err == nil && a.IsError():
			v.err = commands.Error(a.Text)
		case err == nil && a.Kind == resp.Array:
			v.others = append(v.others, a)
		}
	}
}

// sumOthers has the next PUBSUB command add the subscribers of channels on all other nodes. It asks
// in parts if the names are many.
func (s *session) sumOthers(word string, names [][]byte) {
	v := s.pubsubSeen
	if v.none || !s.srv.backend.HasOthers() {
		return
	}
	v.sums = make([]int, len(names))
	for from := 0; from < len(names) && !s.quit; {
		if s.killed.Load() {
			v.err = errNotSent
			return
		}
		question, to := [][]byte{[]byte(word)}, from
		for size := nameCost; to < len(names); to++ {
			name := names[to]
			if commands.CheckChannel(name) != nil {
				name = nil // nobody subscribes to it: its place alone is needed
			}
			if size += len(name) + nameCost; size > maxQuestion {
				break
			}
			question = append(question, name)
		}
		s.askOthers(question...)
		for _, other := range v.others {
			for i := range min(len(other.Elems), to-from) {
				n, _ := commands.ParseInt([]byte(other.Elems[i].Text))
				if commands.CheckChannel(names[from+i]) == nil {
					v.sums[from+i] += int(n)
				}
			}
		}
		from = to
	}
}

// maxQuestion and maxAnswer are the Backend's bounds of questions and answers, bytes. nameCost is
// at least what a name takes besides its bytes, in a question and in its answer.
const (
	maxQuestion = 1 << 20
	maxAnswer   = 4 << 20
	nameCost    = 32
)

// answerLoad makes answers to other nodes share the processor.
var answerLoad = func() Workload {
	h := xxhash.Sum64String("pubsub of another node") | 1
	return Workload{Command: h, Shape: h}
}()

// Answer answers another node's AskOthers; nil: this release does not know the question.
func (s *Server) Answer(question []byte) (answer []byte) {
	v, err := resp.NewReader(bytes.NewReader(question)).Value()
	if err != nil || len(v.Elems) == 0 {
		return nil
	}
	_ = s.backend.Schedule(answerLoad, func() { // nil is an answer if it fails
		answer = s.pubsub.answer(v.Elems[0].Text, v.Elems[1:])
	})
	return answer
}

func (ps *pubsub) answer(question string, words []resp.Value) []byte {
	var answer []byte
	switch question {
	case askChannels, askShardChannels:
		kind, pattern := subChannel, []byte(nil)
		if question == askShardChannels {
			kind = subShard
		}
		if len(words) > 0 {
			pattern = []byte(words[0].Text)
		}
		var names []string
		err := bounded(func(work *budget) { names = ps.names(kind, pattern, work) })
		if err != nil {
			return resp.AppendLine(nil, resp.Error, err.Error())
		}
		answer = resp.AppendHead(answer, resp.Array, int64(len(names)))
		for _, name := range names {
			if answer = resp.AppendBulk(answer, name); len(answer) > maxAnswer {
				return resp.AppendLine(nil, resp.Error, errManyThere.Error())
			}
		}
	case askNumSub, askShardNumSub:
		kind := subChannel
		if question == askShardNumSub {
			kind = subShard
		}
		answer = resp.AppendHead(answer, resp.Array, int64(len(words)))
		for i := range words {
			answer = resp.AppendHead(answer, resp.Int, int64(ps.count(kind, []byte(words[i].Text))))
		}
	case askPatterns:
		hashes := ps.patternHashes()
		answer = resp.AppendHead(answer, resp.Array, int64(len(hashes)))
		for h := range hashes {
			answer = resp.AppendHead(answer, resp.Int, int64(h))
		}
	}
	return answer
}

// patternHashes returns a hash of every pattern, the same on all nodes.
func (ps *pubsub) patternHashes() map[uint64]struct{} {
	hashes := map[uint64]struct{}{}
	ps.patterns.each(func(name string, _ subscribers) {
		hashes[xxhash.Sum64String(name)] = struct{}{}
	})
	return hashes
}

// channelsOf answers PUBSUB CHANNELS or SHARDCHANNELS.
func channelsOf(kind subKind, question string) commands.Local {
	return pubsubLocal(func(s *session, args [][]byte) {
		if len(args) > 3 {
			s.pubsubSeen.err = subcommandSyntax(args)
			return
		}
		if len(args) == 3 {
			if s.pubsubSeen.err = commands.CheckPattern(args[2]); s.pubsubSeen.err != nil {
				return
			}
		}
		s.askOthers(append([][]byte{[]byte(question)}, args[2:]...)...)
	}, func(s *session, args [][]byte) {
		var names []string
		if !s.pubsubSeen.none {
			var pattern []byte
			if len(args) == 3 {
				pattern = args[2]
			}
			names = s.srv.pubsub.names(kind, pattern, s.work)
		}
		for i := range s.pubsubSeen.others {
			for _, name := range s.pubsubSeen.others[i].Elems {
				names = append(names, name.Text)
			}
		}
		if len(s.pubsubSeen.others) > 0 {
			slices.Sort(names)
			names = slices.Compact(names)
		}
		s.w.Array(len(names))
		for _, name := range names {
			s.w.BulkString(name)
		}
	})
}

// numSubOf answers PUBSUB NUMSUB or SHARDNUMSUB.
func numSubOf(kind subKind, question string) commands.Local {
	return pubsubLocal(func(s *session, args [][]byte) {
		s.sumOthers(question, args[2:])
	}, func(s *session, args [][]byte) {
		s.w.Array(2 * len(args[2:]))
		for i, name := range args[2:] {
			n := 0
			if !s.pubsubSeen.none {
				n = s.srv.pubsub.count(kind, name)
			}
			if s.pubsubSeen.sums != nil {
				n += s.pubsubSeen.sums[i]
			}
			s.w.Bulk(name)
			s.w.Int(int64(n))
		}
	})
}

// numPat answers PUBSUB NUMPAT: different patterns.
func numPat() commands.Local {
	return pubsubLocal(func(s *session, _ [][]byte) {
		s.askOthers([]byte(askPatterns))
	}, func(s *session, _ [][]byte) {
		switch {
		case s.pubsubSeen.none:
			s.w.Int(0)
		case len(s.pubsubSeen.others) == 0:
			s.w.Int(int64(s.srv.pubsub.kinds(subPattern)))
		default:
			hashes := s.srv.pubsub.patternHashes()
			for _, other := range s.pubsubSeen.others {
				for i := range other.Elems {
					h, _ := commands.ParseInt([]byte(other.Elems[i].Text))
					hashes[uint64(h)] = struct{}{}
				}
			}
			s.w.Int(int64(len(hashes)))
		}
	})
}

// pubsubLocal makes a subcommand of two parts: one asks other nodes, which takes time, the other
// counts, which takes work.
func pubsubLocal(ask, count func(*session, [][]byte)) commands.Local {
	return commands.Local{
		Works: true,
		Ahead: func(c commands.Client, _ *commands.Spec, args [][]byte) error {
			s := c.(*session)
			s.pubsubSeen = &pubsubView{none: s.isClusterReplica()}
			ask(s, args)
			return s.pubsubSeen.err
		},
		Run: serve(func(s *session, _ *commands.Spec, args [][]byte) {
			defer func() { s.pubsubSeen = nil }()
			count(s, args)
		}),
	}
}
