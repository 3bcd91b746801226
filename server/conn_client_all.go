// CLIENT LIST, KILL and UNBLOCK mean the connections of all nodes: the others are asked, outside of
// the log. docs/adr/0063 says who sees what.

package server

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/ascii"
	"github.com/coordd/coordd/internal/resp"
)

// Questions of other nodes: the first word, and what follows.
const (
	askList    = "client-list"    // the id after which lines are wanted, and filters
	askKill    = "client-kill"    // filters
	askUnblock = "client-unblock" // an id and the reason
)

// maxQuestion and maxAnswer are the Backend's bounds of questions and answers, bytes.
const (
	maxQuestion = 1 << 20
	maxAnswer   = 4 << 20
)

var errManyFilters = commands.Errorf("ERR the filters exceed the %d bytes that other nodes take; "+
	"use fewer ids, or NODE with the id of this node", maxQuestion)

// clientsMeant are the connections that a CLIENT command means, while it runs.
type clientsMeant struct {
	filter *clientFilter
	lines  []clientLine // lines of other nodes, for LIST
	count  int64        // for KILL and UNBLOCK
	silent []string     // nodes that did not answer in time
	ran    bool         // KILL has closed those of this node
	bytes  int          // size of LIST's reply so far
	words  [][]byte     // KILL's question to other nodes; nil: none
}

// clientLine is a line of CLIENT LIST.
type clientLine struct {
	id   uint64
	text string
}

// ahead declares what a command does before its turn, for which it may wait.
func ahead(spec commands.Spec, do func(*session, [][]byte) error) commands.Spec {
	spec.Local.Ahead = func(c commands.Client, _ *commands.Spec, args [][]byte) error {
		return do(c.(*session), args)
	}
	spec.Local.Behind = serve(func(s *session, _ *commands.Spec, _ [][]byte) { s.meant = nil })
	return spec
}

// behind declares what a command does after its turn, for which it may wait.
func behind(spec commands.Spec, do func(s *session, args [][]byte)) commands.Spec {
	spec.Local.Behind = serve(func(s *session, _ *commands.Spec, args [][]byte) {
		do(s, args)
		s.meant, s.killing = nil, nil
	})
	return spec
}

// seesAllClients reports whether commands about connections mean those of all nodes. A cluster
// client asks every node, of which followers answer for themselves.
func (s *session) seesAllClients() bool {
	return s.srv.backend.Level() >= commands.LevelSecond && !s.isClusterReplica()
}

// sendEarlier lets the client see earlier replies while the command waits for other nodes.
func (s *session) sendEarlier() error {
	s.mayWait()
	if !s.inExec && s.send() != nil {
		s.quit = true
		return errNotSent
	}
	return nil
}

// mostLine is more than a line of CLIENT LIST takes.
const mostLine = 4 * maxName

// listLoad stands for CLIENT LIST in what is known of the sizes of replies.
var listLoad = func() Workload {
	h := xxhash.Sum64String("client list") | 1
	return Workload{Command: h, Shape: h}
}()

// reserveList reserves room for the reply to CLIENT LIST, before there are lines. In a transaction
// there are replies already, with which nobody may wait for room.
func (s *session) reserveList(filter *clientFilter) error {
	if s.inExec {
		return nil
	}
	most := int64(math.MaxInt64)
	if filter.order != nil {
		most = mostLine * int64(len(filter.order))
	}
	err := s.reserve(func() int64 { return min(most, s.srv.replies.known.expect(listLoad)) })
	if err != nil {
		s.quit = true
		return errNotSent
	}
	return nil
}

// listBehind gives back the room that the reply does not take.
func listBehind(s *session, _ [][]byte) {
	if s.meant != nil && s.meant.filter.order == nil {
		s.srv.replies.known.note(listLoad, int64(s.meant.bytes))
	}
	if s.answering.held > 0 {
		s.srv.replies.hold(s, int64(cap(s.w.Buf)+s.inHand))
	}
}

// askOthers asks the other nodes.
func (s *session) askOthers(words ...[]byte) (answers []resp.Value, silent []string, err error) {
	question, err := asked(words)
	if err != nil {
		return nil, nil, err
	}
	all, silent := s.srv.backend.AskOthers(question)
	for _, answer := range all {
		if a, err := resp.NewReader(bytes.NewReader(answer)).Value(); err == nil {
			answers = append(answers, a)
		}
	}
	return answers, silent, nil
}

// asked encodes a question.
func asked(words [][]byte) ([]byte, error) {
	question := resp.AppendCall(nil, words)
	if len(question) > maxQuestion {
		return nil, errManyFilters
	}
	return question, nil
}

// askCount adds what other nodes count.
func (s *session) askCount(words ...[]byte) error {
	answers, silent, err := s.askOthers(words...)
	for i := range answers {
		n, _ := commands.ParseInt([]byte(answers[i].Text))
		s.meant.count += n
	}
	s.meant.silent = silent
	return err
}

// doubt is the error for an act that a node may have done or not, which did not answer.
func (m *clientsMeant) doubt() error {
	return commands.Errorf("ERR no answer from %s, done on the other nodes: %d",
		strings.Join(m.silent, ", "), m.count)
}

// listAhead gets the lines of the other nodes. Those that do not answer in time are left out.
func listAhead(s *session, args [][]byte) error {
	filter, err := parseClientFilter(s.srv, s, args[2:], true)
	if err != nil {
		return err
	}
	if err := s.sendEarlier(); err != nil {
		return err
	}
	s.clientID()
	if err := s.reserveList(filter); err != nil {
		return err
	}
	m := &clientsMeant{filter: filter}
	s.meant = m
	if !s.seesAllClients() || filter.onlyHere(s.srv) {
		return nil
	}
	for after, size := uint64(0), 0; size <= commands.MaxReplyBytes; {
		words := [][]byte{[]byte(askList), strconv.AppendUint(nil, after, 10)}
		answers, silent, err := s.askOthers(append(words, args[2:]...)...)
		if err != nil {
			return err
		}
		m.silent = append(m.silent, silent...)
		// Each node sends its first ones: what is above the last of one that has more comes later.
		last := uint64(math.MaxUint64)
		var lines []clientLine
		for i := range answers {
			own, more := readLines(&answers[i])
			if lines = append(lines, own...); more && len(own) > 0 {
				last = min(last, own[len(own)-1].id)
			}
		}
		for _, line := range lines {
			if line.id <= last {
				m.lines = append(m.lines, line)
				size += len(line.text)
			}
		}
		if last == math.MaxUint64 || s.killed.Load() {
			break
		}
		after = last
	}
	slices.Sort(m.silent)
	if m.silent = slices.Compact(m.silent); len(m.silent) > 0 {
		s.srv.warnings.Warn("CLIENT LIST is without the connections of nodes that did not answer",
			"nodes", strings.Join(m.silent, " "))
	}
	return nil
}

// appendLines encodes an answer: whether there are more lines, and ids with lines.
func appendLines(lines []clientLine) []byte {
	size, taken := 64, 0
	for taken < len(lines) && size+len(lines[taken].text)+64 <= maxAnswer {
		size += len(lines[taken].text) + 64
		taken++
	}
	more := int64(0)
	if taken < len(lines) {
		more = 1
	}
	answer := resp.AppendHead(nil, resp.Array, int64(1+2*taken))
	answer = resp.AppendHead(answer, resp.Int, more)
	for _, line := range lines[:taken] {
		answer = resp.AppendHead(answer, resp.Int, int64(line.id))
		answer = resp.AppendBulk(answer, line.text)
	}
	return answer
}

func readLines(answer *resp.Value) (lines []clientLine, more bool) {
	for i := 1; i+1 < len(answer.Elems); i += 2 {
		id, _ := commands.ParseInt([]byte(answer.Elems[i].Text))
		lines = append(lines, clientLine{uint64(id), answer.Elems[i+1].Text})
	}
	return lines, len(answer.Elems) > 0 && answer.Elems[0].Text == "1"
}

// clientLines returns the lines of this node's connections that are meant, by id, from above one.
func (s *Server) clientLines(f *clientFilter, after uint64) []clientLine {
	now, node := time.Now(), s.backend.Status().ID
	var lines []clientLine
	for _, c := range f.choose(s) {
		id := s.clientIDs.tell(c.id)
		if id <= after || c.killed.Load() {
			continue // a killed one only waits until its client has gone
		}
		lines = append(lines, clientLine{id, c.describe(now) + " node=" + node + "\n"})
	}
	return lines
}

func clientList(s *session, _ *commands.Spec, args [][]byte) {
	s.show(len(args))
	m := s.meant
	lines := append(m.lines, s.srv.clientLines(m.filter, 0)...)
	byID := func(a, b clientLine) int { return cmp.Compare(a.id, b.id) }
	slices.SortStableFunc(lines, byID)
	if m.filter.order != nil { // an id may be repeated
		var ordered []clientLine
		for _, id := range m.filter.order {
			if i, ok := slices.BinarySearchFunc(lines, clientLine{id: id}, byID); ok {
				ordered = append(ordered, lines[i])
			}
		}
		lines = ordered
	}
	for _, line := range lines {
		if m.bytes > commands.MaxReplyBytes {
			break // the reply is too large
		}
		m.bytes += len(line.text)
	}
	var b strings.Builder
	b.Grow(m.bytes)
	for i := 0; b.Len() < m.bytes; i++ {
		b.WriteString(lines[i].text)
	}
	s.w.Verbatim("txt", b.String())
}

// killAhead takes an address alone, or filters that must all match.
func killAhead(s *session, args [][]byte) (err error) {
	m := &clientsMeant{words: slices.Concat([][]byte{[]byte(askKill), []byte("addr")}, args[2:]),
		filter: &clientFilter{conditions: []clientCondition{{property: "addr",
			text: string(args[2])}}}}
	if len(args) > 3 {
		m.words = slices.Delete(m.words, 1, 2)
		if m.filter, err = parseClientFilter(s.srv, s, args[2:], false); err != nil {
			return err
		}
	}
	if !s.seesAllClients() || m.filter.onlyHere(s.srv) {
		m.words = nil
	} else if _, err := asked(m.words); err != nil { // before anything is closed
		return err
	}
	if err := s.sendEarlier(); err != nil {
		return err
	}
	s.clientID()
	s.meant = m
	return nil
}

// clientKill ends the sessions of this node that are meant; the caller's own after its reply.
func clientKill(s *session, _ *commands.Spec, _ [][]byte) {
	s.killing = s.meant.filter.choose(s.srv)
	for _, c := range s.killing {
		if c == s {
			s.quit = true
		} else {
			c.kill()
		}
	}
	s.meant.count, s.meant.ran = int64(len(s.killing)), true
}

// killBehind has the other nodes end theirs, and replies.
func killBehind(s *session, args [][]byte) {
	m := s.meant
	if m == nil || !m.ran {
		return // there is an error already
	}
	alone := len(args) == 3
	if m.words != nil && !m.filter.found(m.count) && (!alone || m.count == 0) {
		if err := s.askCount(m.words...); err != nil {
			s.fail(err)
			return
		}
	}
	switch {
	case len(m.silent) > 0 && !m.filter.found(m.count):
		s.fail(m.doubt())
	case !alone:
		s.w.Int(m.count)
	case m.count > 0:
		s.w.Status("OK")
	default:
		s.fail(commands.Error("ERR No such client"))
	}
	s.srv.awaitGone(s.killing, s)
}

// killPatience is how long CLIENT KILL waits for what it ends.
const killPatience = 100 * time.Millisecond

// awaitGone waits a moment for the sessions that CLIENT KILL ends: on Redis they and their
// subscriptions are gone before the reply, and nobody counts them.
func (s *Server) awaitGone(list []*session, caller *session) {
	limit := time.Now().Add(killPatience)
	there := func(c *session) bool { return s.session(c.id) == c || s.counting.owes(c) }
	for _, c := range list {
		for c != caller && there(c) && time.Now().Before(limit) {
			time.Sleep(time.Millisecond)
		}
	}
}

// unblockAhead unblocks a connection of this node, or asks the others.
func unblockAhead(s *session, args [][]byte) error {
	reason := unblockTimeout
	switch {
	case len(args) > 4:
		return subcommandSyntax(args)
	case len(args) == 4:
		reason = ascii.Upper(args[3])
		if reason != unblockTimeout && reason != unblockError {
			return commands.Error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
		}
	}
	n, ok := commands.ParseInt(args[2])
	if !ok {
		return commands.ErrNotInteger
	}
	id := uint64(n)
	s.meant = &clientsMeant{}
	switch c := s.srv.connection(id); {
	case c != nil && c.unblock(reason):
		s.meant.count = 1
		return nil
	case id < commands.FirstClientID || s.srv.clientIDs.number(id) > 0 || !s.seesAllClients():
		return nil
	}
	if err := s.sendEarlier(); err != nil {
		return err
	}
	return s.askCount([]byte(askUnblock), args[2], []byte(reason))
}

func clientUnblock(s *session, _ *commands.Spec, _ [][]byte) {
	if m := s.meant; len(m.silent) > 0 && m.count == 0 {
		s.fail(m.doubt())
		return
	}
	s.w.Int(s.meant.count)
}

// answerLoad makes answers to other nodes share the processor.
var answerLoad = func() Workload {
	h := xxhash.Sum64String("client of another node") | 1
	return Workload{Command: h, Shape: h}
}()

// Answer answers another node's AskOthers; nil: this node does not know the question, has no time
// for it, or no ids for its connections yet that mean nothing on other nodes.
func (s *Server) Answer(question []byte) (answer []byte) {
	if s.clientIDs.lacks(s) {
		return nil
	}
	v, err := resp.NewReader(bytes.NewReader(question)).Value()
	if err != nil || len(v.Elems) == 0 {
		return nil
	}
	words := make([][]byte, len(v.Elems)-1)
	for i := range words {
		words[i] = []byte(v.Elems[1+i].Text)
	}
	var killed []*session
	_ = s.backend.Schedule(answerLoad, func() {
		answer, killed = s.answer(v.Elems[0].Text, words)
	})
	s.awaitGone(killed, nil)
	return answer
}

func (s *Server) answer(question string, words [][]byte) (answer []byte, killed []*session) {
	count := 0
	switch {
	case question == askList && len(words) > 0:
		after, ok := commands.ParseInt(words[0])
		if !ok {
			return nil, nil
		}
		return appendLines(s.clientLines(s.foreignFilter(words[1:], true), uint64(after))), nil
	case question == askKill:
		killed = s.foreignFilter(words, false).choose(s)
		for _, c := range killed {
			c.kill()
		}
		count = len(killed)
	case question == askUnblock && len(words) == 2:
		id, ok := commands.ParseInt(words[0])
		c := s.connection(uint64(id))
		if ok && id >= commands.FirstClientID && c != nil && c.unblock(string(words[1])) {
			count = 1
		}
	default:
		return nil, nil
	}
	return resp.AppendHead(nil, resp.Int, int64(count)), killed
}

// foreignFilter parses the filters of another node. Of those of a later release that this node does
// not know, none of its connections is meant.
func (s *Server) foreignFilter(filters [][]byte, list bool) *clientFilter {
	f, err := parseClientFilter(s, nil, filters, list)
	if err != nil {
		return &clientFilter{conditions: []clientCondition{{property: "id"}}}
	}
	return f
}
