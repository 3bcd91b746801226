// PUBSUB: what it shows of the subscriptions of all nodes.

package server

import (
	"github.com/coordd/coordd/commands"
)

// pubsubView is whose subscriptions PUBSUB shows.
type pubsubView interface {
	names(kind subKind, pattern []byte) []string // in order; nil: of all
	count(kind subKind, name []byte) int64
	patterns() int // different ones
}

// ofAll are the subscriptions of all nodes, as the machine knows them.
type ofAll struct{ x *commands.Call }

func (a ofAll) spend(units uint64) { a.x.Spend(int(units)) }

func (a ofAll) names(kind subKind, pattern []byte) []string {
	return a.x.Subscribers.Names(kind, pattern, a.spend)
}

func (a ofAll) count(kind subKind, name []byte) int64 {
	n, work := a.x.Subscribers.Of(kind, name)
	a.spend(work)
	return n
}

func (a ofAll) patterns() int { return a.x.Subscribers.Different(subPattern, a.spend) }

// ofNode are the subscriptions of this node, for clients while nodes of 0.1 are members.
type ofNode struct{ s *session }

func (a ofNode) names(kind subKind, pattern []byte) []string {
	return a.s.srv.pubsub.names(kind, pattern, a.s.work)
}

func (a ofNode) count(kind subKind, name []byte) int64 {
	return int64(a.s.srv.pubsub.count(kind, name))
}

func (a ofNode) patterns() int { return a.s.srv.pubsub.kinds(subPattern) }

// ofNone is what a cluster client sees of a replica: it asks the master, or all nodes, and adds up.
type ofNone struct{}

func (ofNone) names(subKind, []byte) []string { return nil }
func (ofNone) count(subKind, []byte) int64    { return 0 }
func (ofNone) patterns() int                  { return 0 }

// isClusterReplica reports whether a cluster client sees this node as a replica.
func (s *session) isClusterReplica() bool {
	as := s.srv.cfg.PresentAs
	if as == PresentCluster || as == PresentReplicated && s.stale {
		return s.srv.backend.Role() != "leader"
	}
	return false
}

// pubsubAnswer answers a subcommand. It fails before it has written anything.
type pubsubAnswer func(a pubsubView, out commands.Reply, args [][]byte) error

// pubsubSub declares a subcommand: the machine answers it, or else the connection.
func pubsubSub(name string, arity int, since, syntax, summary string,
	answer pubsubAnswer) commands.Spec {
	return commands.Spec{
		Name: name, Kind: commands.Read, Arity: arity, Group: "pubsub", Since: since,
		Syntax: syntax, Summary: summary,
		Flags: commands.PubSub | commands.Loading | commands.Stale | commands.Unflagged |
			commands.AnyDB,
		Complexity: "O(N) where N is the number of channels or patterns",
		Handler: func(x *commands.Call) error {
			return answer(ofAll{x}, x.Out, x.Args)
		},
		HandlerLevel: commands.LevelSecond,
		Local: &commands.Local{
			Works: true,
			Run: serve(func(s *session, _ *commands.Spec, args [][]byte) {
				var a pubsubView = ofNode{s}
				if s.isClusterReplica() {
					a = ofNone{}
				}
				if err := answer(a, s.w, args); err != nil {
					s.fail(err)
				}
			}),
		},
	}
}

// channelsOf answers PUBSUB CHANNELS or SHARDCHANNELS.
func channelsOf(kind subKind) pubsubAnswer {
	return func(a pubsubView, out commands.Reply, args [][]byte) error {
		var pattern []byte
		switch {
		case len(args) > 3:
			return subcommandSyntax(args)
		case len(args) == 3:
			if err := commands.CheckPattern(args[2]); err != nil {
				return err
			}
			pattern = args[2]
		}
		names := a.names(kind, pattern)
		out.Array(len(names))
		for _, name := range names {
			out.BulkString(name)
		}
		return nil
	}
}

// numSubOf answers PUBSUB NUMSUB or SHARDNUMSUB.
func numSubOf(kind subKind) pubsubAnswer {
	return func(a pubsubView, out commands.Reply, args [][]byte) error {
		out.Array(2 * len(args[2:]))
		for _, name := range args[2:] {
			out.Bulk(name)
			out.Int(a.count(kind, name))
		}
		return nil
	}
}

// numPat answers PUBSUB NUMPAT.
func numPat(a pubsubView, out commands.Reply, _ [][]byte) error {
	out.Int(int64(a.patterns()))
	return nil
}
