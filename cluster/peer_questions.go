// Questions that nodes ask each other outside of the log: what the clients of each do. Question and
// answer are the program's own.

package cluster

import (
	"context"
	"slices"
	"time"
)

const (
	// MaxQuestion and MaxAnswer bound the bytes of a question and of an answer.
	MaxQuestion = 1 << 20
	MaxAnswer   = 4 << 20
	// maxQuestions is how many questions this node asks at a time; more wait for turnWait.
	// maxAnswers is how many it answers to each member at a time: to some that has given up
	// waiting.
	maxQuestions = 4
	maxAnswers   = 16
	turnWait     = 5 * time.Second
	// maxUnread bounds the bytes that wait for a member that asks and does not read.
	maxUnread = maxAnswers * MaxAnswer
	// answerWait is how long a question waits for answers, lateWait for those of members that were
	// late the last time: one that hangs costs one question the whole wait.
	answerWait = time.Second
	lateWait   = 100 * time.Millisecond
)

// response is a member's answer; nil bytes: it has none.
type response struct {
	from   *link
	answer []byte
}

// AskOthers asks all other members but those that are down. It returns the answers that came in
// time, in no order, and the ids of the members whose answers did not. Nobody answers a question
// that is too large.
func (n *Node) AskOthers(ctx context.Context, question []byte) (answers [][]byte, silent []string) {
	turn := time.NewTimer(turnWait)
	defer turn.Stop()
	asks := len(question) <= MaxQuestion
	select {
	case n.asking <- struct{}{}:
		defer func() { <-n.asking }()
	case <-turn.C:
		asks = false
	case <-n.stop:
		asks = false
	}
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	late := time.NewTimer(lateWait)
	defer late.Stop()
	id := n.nextFrame.Add(1)
	n.linksMu.Lock()
	came := make(chan response, len(n.links))
	awaited := map[*link]bool{} // whether the member was late the last time
	for _, l := range n.links {
		wasLate := l.late.Load()
		switch {
		case asks && l.inquire(id, question, came):
			awaited[l] = wasLate
		case l.up() || n.hasInboundLocked(l.id) || time.Since(l.brokeAt()) < answerWait:
			silent = append(silent, l.id) // it may have clients: this node is about to dial it
		}
	}
	n.linksMu.Unlock()
	giveUp := func(all bool) {
		for l, wasLate := range awaited {
			if all || wasLate {
				l.giveUp(id)
				delete(awaited, l)
				silent = append(silent, l.id)
			}
		}
	}
	for len(awaited) > 0 {
		select {
		case r := <-came:
			switch _, waits := awaited[r.from]; {
			case !waits: // it was given up
			case r.answer == nil:
				silent = append(silent, r.from.id)
			default:
				answers = append(answers, r.answer)
			}
			delete(awaited, r.from)
		case <-late.C:
			giveUp(false)
		case <-ctx.Done():
			giveUp(true)
		case <-n.stop:
			giveUp(true)
		}
	}
	slices.Sort(silent)
	return answers, silent
}

// inquire sends a question, unless the member is not connected or does not understand it. Its
// answer, or the end of the connection, goes to came.
func (l *link) inquire(id uint64, question []byte, came chan<- response) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.takes() || l.peer.abilities&abilityQuestions == 0 {
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

// answerQuestion answers without holding up the connection. More than maxAnswers come at a time
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
