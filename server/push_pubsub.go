// Pub/sub commands: SUBSCRIBE and its family, PUBLISH, PUBSUB.

package server

import (
	"context"
	"maps"
	"slices"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/subscriptions"
)

// Words of the confirmations, by kind of subscription.
var (
	subscribeWords   = [subKinds]string{"subscribe", "psubscribe", "ssubscribe"}
	unsubscribeWords = [subKinds]string{"unsubscribe", "punsubscribe", "sunsubscribe"}
)

// maxSubscriptions limits each kind per connection, except patterns.
const maxSubscriptions = 100_000

const subscribeFlags = commands.PubSub | commands.NoScript | commands.Loading | commands.Stale |
	commands.SubscribeMode

var pubsubSpecs = []commands.Spec{
	{
		Name: "subscribe", Kind: commands.Session, Arity: -2, Group: "pubsub", Since: "2.0.0",
		Flags: subscribeFlags, Channels: commands.AllChannels,
		Syntax: "channel [channel ...]", Summary: "Subscribes to channels.",
		Complexity: "O(N) where N is the number of channels", Local: subscribing(subChannel),
	},
	{
		Name: "psubscribe", Kind: commands.Session, Arity: -2, Group: "pubsub", Since: "2.0.0",
		Flags: subscribeFlags, Channels: commands.AllPatterns,
		Syntax: "pattern [pattern ...]", Summary: "Subscribes to the channels that match patterns.",
		Complexity: "O(N) where N is the number of patterns", Local: subscribing(subPattern),
	},
	{
		Name: "ssubscribe", Kind: commands.Session, Arity: -2, Group: "pubsub", Since: "7.0.0",
		Flags: subscribeFlags, Channels: commands.AllChannels,
		Keys:   commands.KeySpec{First: 1, Last: -1, Step: 1, Flags: commands.KeyNone},
		Syntax: "shardchannel [shardchannel ...]", Summary: "Subscribes to shard channels.",
		Complexity: "O(N) where N is the number of channels", Local: subscribing(subShard),
	},
	{
		Name: "unsubscribe", Kind: commands.Session, Arity: -1, Group: "pubsub", Since: "2.0.0",
		Flags:      subscribeFlags,
		Syntax:     "[channel [channel ...]]",
		Summary:    "Unsubscribes from channels, or from all of them.",
		Complexity: "O(N) where N is the number of channels", Local: unsubscribing(subChannel),
	},
	{
		Name: "punsubscribe", Kind: commands.Session, Arity: -1, Group: "pubsub", Since: "2.0.0",
		Flags:      subscribeFlags,
		Syntax:     "[pattern [pattern ...]]",
		Summary:    "Unsubscribes from patterns, or from all of them.",
		Complexity: "O(N) where N is the number of patterns", Local: unsubscribing(subPattern),
	},
	{
		Name: "sunsubscribe", Kind: commands.Session, Arity: -1, Group: "pubsub", Since: "7.0.0",
		Flags:      subscribeFlags,
		Keys:       commands.KeySpec{First: 1, Last: -1, Step: 1, Flags: commands.KeyNone},
		Syntax:     "[shardchannel [shardchannel ...]]",
		Summary:    "Unsubscribes from shard channels, or from all of them.",
		Complexity: "O(N) where N is the number of channels", Local: unsubscribing(subShard),
	},
	{
		Name: "publish", Kind: commands.Write, Arity: 3, Group: "pubsub", Since: "2.0.0",
		Flags: commands.PubSub | commands.Loading | commands.Stale | commands.Fast |
			commands.MayReplicate | commands.AnyDB,
		Channels: commands.OneChannel,
		Syntax:   "channel message",
		Summary:  "Sends a message to the subscribers of a channel on every node.",
		Complexity: "O(N+M) where N is the number of subscribers of the channel and M the number " +
			"of patterns",
		Handler: publishHandler(false), Local: publishing,
	},
	{
		Name: "spublish", Kind: commands.Write, Arity: 3, Group: "pubsub", Since: "7.0.0",
		Flags: commands.PubSub | commands.Loading | commands.Stale | commands.Fast |
			commands.MayReplicate | commands.AnyDB,
		Channels:   commands.OneChannel,
		Keys:       commands.KeySpec{First: 1, Last: 1, Step: 1, Flags: commands.KeyNone},
		Syntax:     "shardchannel message",
		Summary:    "Sends a message to the subscribers of a shard channel on every node.",
		Complexity: "O(N) where N is the number of subscribers of the channel",
		Handler:    publishHandler(true), Local: publishing,
	},
	{
		Name: "pubsub", Kind: commands.Session, Arity: -2, Group: "pubsub", Since: "2.8.0",
		Summary:    "Reports about the subscriptions on all nodes.",
		Complexity: "That of the subcommand",
		Subcommands: []commands.Spec{
			pubsubSub("channels", -2, "2.8.0", "[pattern]",
				"Lists the channels that have subscribers.", channelsOf(subChannel)),
			pubsubSub("numsub", -2, "2.8.0", "[channel [channel ...]]",
				"Returns the number of subscribers of channels.", numSubOf(subChannel)),
			pubsubSub("numpat", 2, "2.8.0", "",
				"Returns the number of patterns that have subscribers.", numPat),
			pubsubSub("shardchannels", -2, "7.0.0", "[pattern]",
				"Lists the shard channels that have subscribers.",
				channelsOf(subShard)),
			pubsubSub("shardnumsub", -2, "7.0.0", "[shardchannel [shardchannel ...]]",
				"Returns the number of subscribers of shard channels.",
				numSubOf(subShard)),
			helpSpec("PUBSUB", "6.2.0", "pubsub",
				"CHANNELS [<pattern>]",
				"    Return the currently active channels matching a <pattern> (default: '*').",
				"NUMPAT", "    Return number of subscriptions to patterns.",
				"NUMSUB [<channel> ...]",
				"    Return the number of subscribers for the specified channels, excluding",
				"    pattern subscriptions(default: no channels).",
				"SHARDCHANNELS [<pattern>]",
				"    Return the currently active shard level channels matching a <pattern> "+
					"(default: '*').",
				"SHARDNUMSUB [<shardchannel> ...]",
				"    Return the number of subscribers for the specified shard level channel(s)"),
		},
	},
}

// subscribing answers SUBSCRIBE, PSUBSCRIBE or SSUBSCRIBE with a confirmation for each name,
// before any of its messages.
func subscribing(kind subKind) *commands.Local {
	return &commands.Local{Run: serve(func(s *session, spec *commands.Spec, args [][]byte) {
		if err := s.checkNames(kind, args[1:], 0); err != nil {
			s.fail(err)
			return
		}
		if !s.out.hold(&s.srv.wg) {
			s.quit = true
			return
		}
		if s.subs[kind] == nil {
			s.subs[kind] = map[string]struct{}{}
		}
		for _, a := range args[1:] {
			name := string(a)
			if _, known := s.subs[kind][name]; !known {
				if err := s.receive(kind, name); err != nil {
					s.fail(err)
					return
				}
				s.subs[kind][name] = struct{}{}
			}
			s.confirm(subscribeWords[kind], a, kind)
		}
		// Whoever changes users from here on finds the subscriptions.
		s.quit = s.quit || s.admitAgain(spec, args) != nil
	})}
}

// receive has messages sent to the session from now on, if they are not already.
func (s *session) receive(kind subKind, name string) error {
	if _, early := s.planned[subscription{kind, name}]; early {
		delete(s.planned, subscription{kind, name})
		return nil
	}
	return s.srv.pubsub.add(kind, name, s)
}

// receiveAhead has messages for the subscriptions of a transaction sent from now on, before the
// machine runs its commands: what they publish, or others do who saw them, must arrive. Messages
// wait for the reply. What the transaction does not subscribe to then is for forgetAhead.
func (s *session) receiveAhead(block []queued) {
	var names [subKinds]int
	for i := range block {
		q := &block[i]
		kind := subKind(slices.Index(subscribeWords[:], q.spec.Name))
		if kind < 0 || q.invalid != nil || !s.mayRun(q.spec, q.args) ||
			s.checkNames(kind, q.args[1:], names[kind]) != nil {
			continue
		}
		names[kind] += len(q.args) - 1
		if !s.out.hold(&s.srv.wg) {
			s.quit = true
			return
		}
		for _, a := range q.args[1:] {
			name := string(a)
			_, known := s.subs[kind][name]
			_, early := s.planned[subscription{kind, name}]
			if known || early || s.srv.pubsub.add(kind, name, s) != nil {
				continue
			}
			if s.planned == nil {
				s.planned = map[subscription]struct{}{}
			}
			s.planned[subscription{kind, name}] = struct{}{}
		}
	}
}

// forgetAhead ends the subscriptions of receiveAhead that the transaction has not made, and drops
// their messages.
func (s *session) forgetAhead() {
	for a := range s.planned {
		s.srv.pubsub.remove(a.kind, a.name, s)
	}
	if len(s.planned) > 0 {
		s.awaitDelivery(context.Background()) // what is on its way was for them too
		s.out.dropHeld(func(m *message) bool {
			_, planned := s.planned[subscription{m.kind, string(m.name)}]
			return planned && m.name != nil
		})
	}
	s.planned = nil
}

// checkNames rejects too many or too long names, besides so many others that are planned.
func (s *session) checkNames(kind subKind, names [][]byte, others int) error {
	most, check := maxSubscriptions, commands.CheckChannel
	if kind == subPattern {
		most, check = maxPatterns, commands.CheckPattern
	}
	if len(s.subs[kind])+others+len(names) > most {
		return commands.Errorf(
			"ERR too many subscriptions: the limit is %d of each kind per connection", most)
	}
	for _, name := range names {
		if err := check(name); err != nil {
			return err
		}
	}
	return nil
}

// unsubscribing answers UNSUBSCRIBE and its family. Without names it ends all subscriptions.
func unsubscribing(kind subKind) *commands.Local {
	return &commands.Local{Run: serve(func(s *session, _ *commands.Spec, args [][]byte) {
		s.hearOut()
		names := args[1:]
		if len(names) == 0 {
			for _, name := range slices.Sorted(maps.Keys(s.subs[kind])) {
				names = append(names, []byte(name))
			}
		}
		for _, a := range names {
			s.unsubscribe(kind, string(a))
			s.confirm(unsubscribeWords[kind], a, kind)
		}
		if len(names) == 0 {
			s.confirm(unsubscribeWords[kind], nil, kind)
		}
	})}
}

// hearOut has what was published before precede the reply with which the client stops to listen,
// whichever command that is.
func (s *session) hearOut() {
	if !s.subscribed() && !s.monitoring {
		return
	}
	s.awaitDelivery(context.Background())
	if !s.inExec && s.send() != nil { // in a transaction they follow the reply
		s.quit = true
	}
}

func (s *session) unsubscribe(kind subKind, name string) {
	if _, known := s.subs[kind][name]; known {
		delete(s.subs[kind], name)
		s.srv.pubsub.remove(kind, name, s)
	}
}

// confirm confirms a subscription or its end, with the number of remaining ones. Shard channels
// count separately.
func (s *session) confirm(word string, name []byte, kind subKind) {
	n := len(s.subs[subChannel]) + len(s.subs[subPattern])
	if kind == subShard {
		n = len(s.subs[subShard])
	}
	s.pushed = true
	s.w.Push(3)
	s.w.BulkString(word)
	if name == nil {
		s.w.Null()
	} else {
		s.w.Bulk(name)
	}
	s.w.Int(int64(n))
}

// publishHandler sends a message from the log. Below LevelSecond the machine does not know the
// subscribers, so it replies 0.
func publishHandler(shard bool) commands.Handler {
	return func(x *commands.Call) error {
		x.ExpectMessages(len(x.Args[1]) + len(x.Args[2]))
		if err := commands.CheckChannel(x.Args[1]); err != nil && x.Level >= commands.LevelSecond {
			return err
		}
		e := commands.Event{Channel: x.Args[1], Payload: x.Args[2], Shard: shard}
		n, work := int64(0), uint64(0)
		switch {
		case x.Level < commands.LevelSecond:
		case shard:
			n, work = x.Subscribers.Of(subscriptions.Shard, x.Args[1])
		default:
			n, work, e.Matching = x.Subscribers.Receivers(x.Args[1])
		}
		x.Spend(int(work))
		x.Out.Int(n) // first: a message without room for its reply is not sent
		x.Send(e)
		return nil
	}
}

// publishing answers PUBLISH and SPUBLISH outside of a transaction.
var publishing = &commands.Local{Raw: true,
	Run: serve(func(s *session, spec *commands.Spec, args [][]byte) {
		// before the log; the machine checks scripts and transactions
		if err := commands.CheckChannel(args[1]); err != nil {
			s.failRaw(spec, args, err)
			return
		}
		s.batch.cmd[0] = args
		s.addRequest(true, s.batch.cmd[:], pending{step: delivered, args: args,
			spec: spec})
	})}

// publishes reports whether a command is PUBLISH or SPUBLISH.
func publishes(spec *commands.Spec) bool {
	return spec.Kind == commands.Write && spec.Has(commands.PubSub)
}

// replyReceivers answers one of these with the machine's reply. Below LevelSecond the machine does
// not know the receivers, and the reply is their number on this node.
func (s *session) replyReceivers(spec *commands.Spec, args [][]byte, reply []byte) {
	if s.srv.backend.Level() >= commands.LevelSecond {
		s.reply.Buf = append(s.reply.Buf, reply...)
		return
	}
	shard := spec.Keys.First > 0 // SPUBLISH
	s.reply.Int(int64(s.srv.pubsub.receivers(args[1], shard)))
}
