// The commands of client-side caching: CLIENT TRACKING and its family, and which reads of a
// session are recorded.

package server

import (
	"slices"
	"strings"

	"github.com/coordd/coordd/commands"
)

const (
	errTrackRedirects commands.Error = "ERR A client can only redirect to a single other client"
	errTrackTarget    commands.Error = "ERR The client ID you want redirect to does not exist"
	errTrackPrefix    commands.Error = "ERR PREFIX option requires BCAST mode to be enabled"
	errTrackBcast     commands.Error = "ERR You can't switch BCAST mode on/off before disabling " +
		"tracking for this client, and then re-enabling it with a different mode."
	errTrackBcastOpt  commands.Error = "ERR OPTIN and OPTOUT are not compatible with BCAST"
	errTrackOpts      commands.Error = "ERR You can't specify both OPTIN mode and OPTOUT mode"
	errTrackOptSwitch commands.Error = "ERR You can't switch OPTIN/OPTOUT mode before disabling " +
		"tracking for this client, and then re-enabling it with a different mode."
	errTrackForeign commands.Error = "NOPERM REDIRECT to a connection of another user " +
		"requires the right to CLIENT KILL"
	errCachingOff commands.Error = "ERR CLIENT CACHING can be called only when the client is " +
		"in tracking mode with OPTIN or OPTOUT mode enabled"
	errCachingYes commands.Error = "ERR CLIENT CACHING YES is only valid when tracking is " +
		"enabled in OPTIN mode."
	errCachingNo commands.Error = "ERR CLIENT CACHING NO is only valid when tracking is " +
		"enabled in OPTOUT mode."
)

var trackingSpecs = []commands.Spec{
	clientSub("tracking", -3, "6.0.0",
		"<ON | OFF> [REDIRECT client-id:integer] [PREFIX prefix [PREFIX prefix ...]] [BCAST] "+
			"[OPTIN] [OPTOUT] [NOLOOP]",
		"Turns notifications about changes to the keys that the client reads on or off.", false,
		clientTracking),
	clientSub("caching", 3, "6.0.0", "<YES | NO>",
		"Sets whether the keys of the next command are tracked.", false, clientCaching),
	clientSub("trackinginfo", 2, "6.2.0", "", "Returns the tracking state of the connection.",
		false, clientTrackingInfo),
	clientSub("getredir", 2, "6.0.0", "",
		"Returns the id of the connection that receives this one's tracking notifications.", false,
		clientGetRedir),
}

func clientTracking(s *session, _ *commands.Spec, args [][]byte) {
	if _, err := s.knownUsers(); err != nil { // who may learn the names of keys is not known
		s.fail(err)
		return
	}
	t, err := s.parseTracking(args[3:])
	if err != nil {
		s.fail(err)
		return
	}
	switch {
	case is(args[2], "on"):
		err = s.startTracking(t)
	case is(args[2], "off"):
		s.srv.tracking.stop(s)
		s.srv.observe()
		s.caching = false
	default:
		err = commands.ErrSyntax
	}
	if err != nil {
		s.fail(err)
		return
	}
	s.w.Status("OK")
}

// parseTracking parses the options of CLIENT TRACKING.
func (s *session) parseTracking(args [][]byte) (*tracker, error) {
	t := &tracker{}
	redirected := false
	for i := 0; i < len(args); i++ {
		more := i+1 < len(args)
		switch {
		case is(args[i], "redirect") && more:
			i++
			if redirected {
				return nil, errTrackRedirects
			}
			id, ok := commands.ParseInt(args[i])
			if !ok {
				return nil, commands.ErrNotInteger
			}
			t.redirect = s.srv.clientIDs.number(uint64(id))
			redirected = true
			if err := s.mayRedirect(t); err != nil {
				return nil, err
			}
		case is(args[i], "bcast"):
			t.bcast = true
		case is(args[i], "optin"):
			t.optin = true
		case is(args[i], "optout"):
			t.optout = true
		case is(args[i], "noloop"):
			t.noloop = true
		case is(args[i], "prefix") && more:
			i++
			t.prefixes = append(t.prefixes, string(args[i]))
		default:
			return nil, commands.ErrSyntax
		}
	}
	return t, nil
}

// mayRedirect returns the error for a redirection to a connection that there is not, or that the
// session's user may not send to. It may to those of the same user, and to any if it may end them.
func (s *session) mayRedirect(t *tracker) error {
	target := s.srv.receiver(t.redirect)
	if target == nil {
		return errTrackTarget
	}
	if !s.maySendTo(target) {
		s.deny(refusedCall{reason: "command", context: s.context(), object: "client|tracking",
			user: s.userName()}, 1)
		return errTrackForeign
	}
	return nil
}

// maySendTo reports whether the user that the session has now may have messages sent to another
// connection.
func (s *session) maySendTo(target *session) bool {
	return target.userName() == s.userName() || s.administers()
}

// startTracking starts tracking as t says, if that is compatible with the current mode.
func (s *session) startTracking(t *tracker) error {
	old := s.track.Load()
	switch {
	case !t.bcast && len(t.prefixes) > 0:
		return errTrackPrefix
	case old != nil && old.bcast != t.bcast:
		return errTrackBcast
	case t.bcast && (t.optin || t.optout):
		return errTrackBcastOpt
	case t.optin && t.optout:
		return errTrackOpts
	case old != nil && (t.optin && old.optout || t.optout && old.optin):
		return errTrackOptSwitch
	}
	var added []string
	if t.bcast {
		var err error
		if added, err = t.joinPrefixes(old); err != nil {
			return err
		}
	}
	if !s.out.hold(&s.srv.wg) {
		s.quit = true
		return nil
	}
	if target := s.srv.receiver(t.redirect); target != nil {
		target.out.open(&s.srv.wg)
	}
	t.after = s.srv.pubsub.delivery.join()
	if old != nil {
		t.after = old.after // what it tracks already may have changed in what is not delivered yet
	}
	s.srv.tracking.begin(s, t)
	s.srv.tracking.join(s, added)
	s.srv.observe()
	// checked when DropWaiting can see that the session is tracked
	err := s.srv.pubsub.disabledReason()
	if err != nil {
		s.srv.tracking.stop(s)
		s.srv.observe()
	}
	return err
}

// Limits of the prefixes of one client.
const (
	maxPrefixes    = 10_000
	maxPrefixBytes = 1 << 10 // bytes of one prefix
)

// joinPrefixes adds the client's existing prefixes, and returns the new ones.
func (t *tracker) joinPrefixes(old *tracker) (added []string, err error) {
	var before []string
	if old != nil {
		before = old.prefixes
	}
	if len(before)+len(t.prefixes) > maxPrefixes {
		return nil, commands.Errorf("ERR too many prefixes: the limit is %d per client",
			maxPrefixes)
	}
	for _, p := range t.prefixes {
		if len(p) > maxPrefixBytes {
			return nil, commands.Errorf("ERR prefix exceeds %d bytes", maxPrefixBytes)
		}
	}
	if err := overlap(t.prefixes, before); err != nil {
		return nil, err
	}
	if added = t.prefixes; len(added) == 0 {
		added = []string{""}
	}
	t.prefixes = slices.Concat(added, before)
	slices.Sort(t.prefixes)
	t.prefixes = slices.Compact(t.prefixes)
	return added, nil
}

// overlap rejects prefixes where one begins with another. before is sorted and has no overlaps,
// except with an empty prefix. The error names the pair that comparing all pairs in order would
// find first.
func overlap(prefixes, before []string) error {
	clashing := firstClash(prefixes)
	for i, p := range prefixes {
		if b, found := existing(before, p); found {
			return commands.Errorf(
				"ERR Prefix '%s' overlaps with an existing prefix '%s'. Prefixes for a single "+
					"client must not overlap.", p, b)
		}
		if i != clashing {
			continue
		}
		// certain to match: an overlap with an earlier one would have been found
		for _, other := range prefixes[i+1:] {
			if overlapping(p, other) {
				return commands.Errorf(
					"ERR Prefix '%s' overlaps with another provided prefix '%s'. Prefixes for a "+
						"single client must not overlap.", p, other)
			}
		}
	}
	return nil
}

func overlapping(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

// existing returns the first prefix of before that overlaps with p.
func existing(before []string, p string) (string, bool) {
	if len(before) > 0 && before[0] == "" {
		return "", true
	}
	at, _ := slices.BinarySearch(before, p)
	for i := max(at-1, 0); i <= at && i < len(before); i++ { // only a neighbor can overlap
		if overlapping(before[i], p) {
			return before[i], true
		}
	}
	return "", false
}

// firstClash returns the index of the first prefix that overlaps with another, or -1. In sorted
// order, a prefix precedes all that begin with it.
func firstClash(prefixes []string) int {
	order := make([]int, len(prefixes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(prefixes[a], prefixes[b]) })
	first := -1
	clash := func(i int) {
		if first < 0 || i < first {
			first = i
		}
	}
	var open []int // a chain: each begins with the one before it
	for _, i := range order {
		for len(open) > 0 && !strings.HasPrefix(prefixes[i], prefixes[open[len(open)-1]]) {
			open = open[:len(open)-1]
		}
		if len(open) > 0 {
			clash(i)
			clash(open[len(open)-1])
		}
		open = append(open, i)
	}
	return first
}

func clientCaching(s *session, _ *commands.Spec, args [][]byte) {
	t := s.track.Load()
	var err error
	switch {
	case t == nil:
		err = errCachingOff
	case is(args[2], "yes") && !t.optin:
		err = errCachingYes
	case is(args[2], "no") && !t.optout:
		err = errCachingNo
	case !is(args[2], "yes") && !is(args[2], "no"):
		err = commands.ErrSyntax
	}
	if err != nil {
		s.fail(err)
		return
	}
	s.caching = true
	s.w.Status("OK")
}

// cachingPast ends CLIENT CACHING after the command, or whole transaction, that it applied to; nil
// is a command that there is not.
func (s *session) cachingPast(spec *commands.Spec) {
	if s.caching && !s.tx.open && (spec == nil || !spec.Has(commands.KeepsCaching)) {
		s.caching = false
	}
}

func clientTrackingInfo(s *session, _ *commands.Spec, _ [][]byte) {
	t := s.track.Load()
	flags := []string{"off"}
	var prefixes []string
	if t != nil {
		flags, prefixes = []string{"on"}, t.prefixes
		for _, f := range []struct {
			on   bool
			name string
		}{
			{t.bcast, "bcast"}, {t.optin, "optin"}, {t.optin && s.caching, "caching-yes"},
			{t.optout, "optout"}, {t.optout && s.caching, "caching-no"}, {t.noloop, "noloop"},
			{t.broken.Load(), "broken_redirect"},
		} {
			if f.on {
				flags = append(flags, f.name)
			}
		}
	}
	s.w.Map(3)
	s.w.BulkString("flags")
	s.w.Set(len(flags))
	for _, f := range flags {
		s.w.BulkString(f)
	}
	s.w.BulkString("redirect")
	s.w.Int(s.redirect())
	s.w.BulkString("prefixes")
	s.w.Array(len(prefixes))
	for _, p := range prefixes {
		s.w.BulkString(p)
	}
}

func clientGetRedir(s *session, _ *commands.Spec, _ [][]byte) { s.w.Int(s.redirect()) }

// redirect returns the id of the connection that receives this client's invalidations; 0: this one,
// -1: tracking is off.
func (s *session) redirect() int64 {
	switch t := s.track.Load(); {
	case t == nil:
		return -1
	case t.redirect == 0:
		return 0
	default:
		id, _ := s.srv.clientIDs.of(t.redirect)
		return int64(id)
	}
}

// requestClient returns the client number that requests carry: 0, unless the client has NOLOOP or
// locks that it may lose, or a monitor shows what its scripts call.
func (s *session) requestClient() uint64 {
	if s.track.Load().quiet() || s.srv.monitors.size.Load() > 0 || s.holdsLocks.Load() > 0 {
		return s.clientNumber()
	}
	return 0
}

// clientNumber identifies the session in requests and events, uniquely in the cluster.
func (s *session) clientNumber() uint64 { return s.srv.clientBase + s.id }

// recorded is what remember did for a request.
type recorded struct {
	denied bool     // this node would not permit the command; if it runs, uncache must follow
	asks   bool     // the request asks which keys its scripts read
	maybe  []string // keys that are dropped again unless the scripts have read them
}

// remember records the keys that a command is about to read, if the client tracks them and its user
// may run the command.
//
// The machine decides whether the user may, by users that this node may not have applied yet. And
// only the machine knows which of its keys a script reads.
func (s *session) remember(spec *commands.Spec, args [][]byte) (r recorded) {
	spec, args = spec.Carried(args)
	t := s.track.Load()
	if t == nil || t.bcast || t.optin && !s.caching || t.optout && s.caching {
		return r
	}
	users := s.srv.users()
	r.asks = spec.Group == "scripting" && spec.Keys.Numkeys > 0 &&
		users != nil && users.Level >= commands.LevelSecond
	keys := keysRead(spec, args)
	switch {
	case len(keys) == 0:
		return r
	case !s.mayRun(spec, args):
		r.denied = !r.asks
		return r
	case !s.out.hold(&s.srv.wg):
		s.quit = true
		return r
	}
	if r.asks {
		r.maybe = s.srv.tracking.rememberMaybe(s, keys, s.srv.tellEvicted)
	} else {
		s.srv.tracking.remember(s, keys, s.srv.tellEvicted)
	}
	return r
}

// decide keeps of the keys that scripts of a request may read those that they have read. a is
// empty if the request failed.
func (s *session) decide(r *recorded, a commands.Answer) {
	t := s.track.Load()
	if !r.asks || t == nil {
		return
	}
	if others := s.srv.tracking.decide(s, r.maybe, a.Read); a.ReadsUnknown {
		s.invalidate(nil) // all that the client caches
	} else if len(others) > 0 && !t.bcast {
		// not declared: they may have changed before anybody knew that they are read
		s.invalidate(others)
	}
}

// tellEvicted tells clients that keys are not tracked any more. It never waits: if delivery is so
// far behind that there is no room, they drop all that they cache, however many keys that are.
func (s *Server) tellEvicted(v invalidation) {
	d := &s.pubsub.delivery
	if !d.offer(parcel{evicted: v}, 0) && s.tracking.owe(v.to) {
		d.put(parcel{overdue: true})
	}
}

// setTrackedKeys sets tracking-table-max-keys.
func (s *Server) setTrackedKeys(n int64) {
	s.tracking.maxKeys.Store(n)
	s.tracking.trim(s.tellEvicted)
}

// keysRead returns the keys that a command reads, of a script all that it declares.
func keysRead(spec *commands.Spec, args [][]byte) []string {
	if (spec.Kind != commands.Read && spec.Group != "scripting") || spec.Group == "transactions" ||
		spec.Has(commands.PubSub) {
		return nil
	}
	indexes, _ := spec.KeyIndexes(args) // none if the call is invalid
	keys := make([]string, len(indexes))
	for i, at := range indexes {
		keys[i] = string(args[at])
	}
	return keys
}

// uncache invalidates, after the reply, what a command has read although this node did not permit
// it: the keys are not tracked.
func (s *session) uncache(spec *commands.Spec, args [][]byte) {
	s.invalidate(keysRead(spec.Carried(args)))
}

// invalidate tells the client, after the reply, that keys have changed; nil: all keys.
func (s *session) invalidate(keys []string) {
	if !s.out.hold(&s.srv.wg) { // a wait that times out has held nothing since it began
		s.quit = true
		return
	}
	s.srv.tellEvicted(invalidation{keys: keys, to: []*session{s}})
}
