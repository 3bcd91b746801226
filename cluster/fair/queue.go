// Start-time fair queueing: who is next.

package fair

import (
	"cmp"
)

// Flow is one connection: of this node, or of the follower that sends its frames through via.
type Flow struct {
	Via any // the connection of a follower, a pointer; nil: of this node
	ID  uint64
}

// maxFlows bounds the flows in a fairQueue, which remembers those that never come back too.
const maxFlows = 1024

// Queue does the accounting of start-time fair queueing. Its owner guards it.
type Queue struct {
	virtualTime uint64          // the latest start tag that was served
	finishTags  map[Flow]uint64 // tags of the flows that were served lately
	turns       uint64          // given so far
	overtaken   bool            // the last one went to a newcomer, past one that came before it
}

// Place is where a piece of work stands that waits for a turn.
type Place struct {
	Flow     Flow   // who is charged; the zero flow: nobody
	startTag uint64 // the flow's, when the work came
	newcomer bool   // the flow was not served lately
	came     uint64 // how many turns had been given
	Seq      uint64 // the order of arrival
}

func (p *Place) placed() *Place { return p }

// before reports whether p is served before o. A newcomer wins ties: it may ask for little and does
// not wait for a round of the others.
func (p *Place) before(o *Place) bool { return p.Compare(o) < 0 }

func (p *Place) Compare(o *Place) int {
	switch {
	case p.startTag != o.startTag:
		return cmp.Compare(p.startTag, o.startTag)
	case p.newcomer != o.newcomer && p.newcomer:
		return -1
	case p.newcomer != o.newcomer:
		return 1
	}
	return cmp.Compare(p.Seq, o.Seq)
}

// Place returns the place of a flow's next piece of work.
func (s *Queue) Place(f Flow, seq uint64) Place {
	end, known := s.finishTags[f]
	return Place{f, max(s.virtualTime, end), !known, s.turns, seq}
}

// InDebt reports whether a flow has had more than its share.
func (s *Queue) InDebt(f Flow) bool { return s.finishTags[f] > s.virtualTime }

// NextTurn gives a turn to the first of those that wait, and returns its index.
//
// Newcomers start at virtual time, ahead of those in debt. Who opens a connection for each request
// is a newcomer always, and would keep the others waiting. So newcomers have every second turn at
// most while another one waits that came before them.
func NextTurn[T interface{ placed() *Place }](s *Queue, waiting []T) int {
	first, known, came := 0, -1, s.turns
	for i, w := range waiting {
		p := w.placed()
		if p.before(waiting[first].placed()) {
			first = i
		}
		if !p.newcomer {
			if came = min(came, p.came); known < 0 || p.before(waiting[known].placed()) {
				known = i
			}
		}
	}
	p := waiting[first].placed()
	overtakes := p.newcomer && known >= 0 && came < p.came
	if overtakes && s.overtaken {
		first, overtakes = known, false
	}
	s.overtaken = overtakes
	s.turns++
	s.advance(waiting[first].placed().startTag)
	return first
}

// Charge bills work to the flow that had this place.
func (s *Queue) Charge(p Place, units uint64) {
	if p.Flow == (Flow{}) || units == 0 {
		return
	}
	if s.finishTags == nil {
		s.finishTags = map[Flow]uint64{}
	}
	s.finishTags[p.Flow] = max(p.startTag+units, s.finishTags[p.Flow])
	if len(s.finishTags) > maxFlows {
		for _, end := range s.finishTags {
			s.advance(end)
		}
		clear(s.finishTags)
	}
}

// Serve notes that what had this place is served without a turn of its own.
func (s *Queue) Serve(p Place) { s.advance(p.startTag) }

// advance moves virtual time to the start tag of what is served.
func (s *Queue) advance(start uint64) { s.virtualTime = max(s.virtualTime, start) }
