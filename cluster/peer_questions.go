// Questions that nodes ask each other outside of the log: what the clients of each do. Question and
// answer are the program's own. A node that does not answer in time is left out.

package cluster

import (
	"context"
	"time"
)

const (
	// MaxQuestion and MaxAnswer bound the bytes of a question and of an answer.
	MaxQuestion = 1 << 20
	MaxAnswer   = 4 << 20
	// maxQuestions is how many questions this node asks at a time, and so how many it answers to
	// each member; more wait.
	maxQuestions = 16
	// maxUnread bounds the bytes that wait for a member that asks and does not read.
	maxUnread = maxQuestions * MaxAnswer
	// answerWait is how long a question waits for answers, lateWait for those of members that were
	// late the last time: one that hangs costs one question the whole wait.
	answerWait = 500 * time.Millisecond
	lateWait   = 20 * time.Millisecond
)

// response is a member's answer; nil bytes: it has none.
type response struct {
	from   *link
	answer []byte
}

// HasOthers reports whether there are other members.
func (n *Node) HasOthers() bool {
	n.linksMu.Lock()
	defer n.linksMu.Unlock()
	return len(n.links) > 0
}

// AskOthers asks all other members that are connected, and returns the answers that came in time,
// in no order. A question that is too large gets none.
func (n *Node) AskOthers(ctx context.Context, question []byte) [][]byte {
	if len(question) > MaxQuestion {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	select {
	case n.asking <- struct{}{}:
		defer func() { <-n.asking }()
	case <-ctx.Done():
		return nil
	}
	id := n.nextFrame.Add(1)
	n.linksMu.Lock()
	came := make(chan response, len(n.links))
	awaited := map[*link]bool{} // whether the member was in time the last time
	for _, l := range n.links {
		inTime := !l.late.Load()
		if l.inquire(id, question, came) {
			awaited[l] = inTime
		}
	}
	n.linksMu.Unlock()
	answers := n.collect(ctx, came, awaited)
	for l := range awaited {
		l.giveUp(id)
	}
	return answers
}

// collect takes answers until all awaited members have answered, or lateWait is over and those that
// were in time the last time have. It leaves the members that have not answered in awaited.
func (n *Node) collect(ctx context.Context, came <-chan response, awaited map[*link]bool) [][]byte {
	var answers [][]byte
	patience := time.NewTimer(lateWait)
	defer patience.Stop()
	impatient := false
	prompt := 0
	for _, inTime := range awaited {
		if inTime {
			prompt++
		}
	}
	for len(awaited) > 0 && (prompt > 0 || !impatient) {
		select {
		case r := <-came:
			if awaited[r.from] {
				prompt--
			}
			delete(awaited, r.from)
			if r.answer != nil {
				answers = append(answers, r.answer)
			}
		case <-patience.C:
			impatient = true
		case <-ctx.Done():
			return answers
		case <-n.stop:
			return answers
		}
	}
	return answers
}

// inquire sends a question, unless the member is not connected, does not understand it, or reads
// nothing. Its answer, or the end of the connection, goes to came.
func (l *link) inquire(id uint64, question []byte, came chan<- response) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.takes() || l.peer.abilities&abilityQuestions == 0 || l.wire.backlog() >= maxAskQueue {
		return false
	}
	if l.asked == nil {
		l.asked = map[uint64]chan<- response{}
	}
	l.asked[id] = came
	return l.wire.send(endFrame(append(beginFrame(len(question)), question...), frameQuestion, 0,
		id), nil)
}

// giveUp forgets a question to a member that has not answered in time.
func (l *link) giveUp(id uint64) {
	l.late.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.asked, id)
}

// takeAnswer handles an answer, which may be late.
func (l *link) takeAnswer(f frame) {
	l.late.Store(false)
	l.mu.Lock()
	defer l.mu.Unlock()
	came := l.asked[f.id]
	if came == nil {
		return
	}
	delete(l.asked, f.id)
	r := response{from: l}
	if f.status == statusDone {
		r.answer = f.payload
	}
	came <- r // it has room
}

// unanswered ends the questions of a lost connection. The caller holds mu.
func (l *link) unanswered() {
	for _, came := range l.asked {
		came <- response{from: l}
	}
	l.asked = nil
}

// answerQuestion answers without holding up the connection. More than maxQuestions come at a time
// only if the member has given up on earlier ones.
func (in *inbound) answerQuestion(f frame) {
	send := func(status frameStatus, answer []byte) {
		in.w.send(endFrame(append(beginFrame(len(answer)), answer...), frameAnswer, status, f.id),
			nil)
	}
	select {
	case in.answering <- struct{}{}:
	default:
		send(statusNotTaken, nil)
		return
	}
	go func() {
		defer func() { <-in.answering }()
		var answer []byte
		if in.n.cfg.Answer != nil {
			answer = in.n.cfg.Answer(f.payload)
		}
		if answer == nil || len(answer) > MaxAnswer || in.w.backlog() > maxUnread {
			send(statusNotTaken, nil)
			return
		}
		send(statusDone, answer)
	}()
}
