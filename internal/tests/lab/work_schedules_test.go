//go:build linux

// A schedule: members of a sorted set get other scores and are removed, while clients that wait for
// the first one go away. What such a client was given may come back, but not over a later write.

package lab

import (
	"fmt"
	"strconv"
	"time"

	"github.com/coordd/coordd/internal/resp"
)

// scheduled is the state of a key.
type scheduled struct {
	scores [2]int // by member; 0: it is not there
	lent   [2]loan
}

// loan is a member that a client has taken without a sign of it.
type loan struct{ client, score int }

// schedule has its last client vanish.
type schedule struct{ keyed[scheduled] }

func schedules(*work) player {
	return &schedule{keyed[scheduled]{model: model[scheduled]{step: stepSchedule},
		next: nextOfSchedule}}
}

func (p *schedule) turn(a *actor) {
	if a.seat < actorsEach-1 {
		p.keyed.turn(a)
	} else if a.connect() {
		a.vanish(a.key())
	}
}

func stepSchedule(s scheduled, e *event) (scheduled, string) {
	argument := func(i int) int {
		n, _ := strconv.Atoi(e.Args[i])
		return n
	}
	first := 0 // by score, then by name
	if s.scores[0] == 0 || s.scores[1] != 0 && s.scores[1] < s.scores[0] {
		first = 1
	}
	switch e.Op {
	case "zadd":
		m := argument(0)
		added := min(s.scores[m], 1) ^ 1
		s.scores[m], s.lent = argument(1), [2]loan{}
		return s, strconv.Itoa(added)
	case "zrem":
		m := argument(0)
		removed := min(s.scores[m], 1)
		s.scores[m], s.lent = 0, [2]loan{}
		return s, strconv.Itoa(removed)
	case "del":
		return scheduled{}, strconv.Itoa(min(s.scores[0]+s.scores[1], 1))
	case "zpopmin":
		score := s.scores[first]
		if score == 0 {
			return s, "[]"
		}
		s.scores[first] = 0
		return s, fmt.Sprintf("[%d %d]", first, score)
	case "vanish":
		if score := s.scores[first]; score != 0 {
			s.scores[first], s.lent[first] = 0, loan{e.Actor, score}
		}
		return s, ""
	case "comes back":
		for m, l := range s.lent {
			if l.score != 0 && l.client == argument(0) {
				s.scores[m], s.lent[m] = l.score, loan{}
			}
		}
		return s, ""
	}
	m := argument(0) // zscore
	if s.scores[m] == 0 {
		return s, "nil"
	}
	return s, strconv.Itoa(s.scores[m])
}

func nextOfSchedule(a *actor, key string) call {
	m, score := strconv.Itoa(a.rnd.IntN(2)), strconv.Itoa(1+a.rnd.IntN(9))
	switch a.rnd.IntN(8) {
	case 0, 1, 2:
		return call{key: key, op: "zadd", args: []string{m, score},
			ask: command("ZADD", key, score, m)}
	case 3:
		return call{key: key, op: "zrem", args: []string{m}, ask: command("ZREM", key, m)}
	case 4:
		return call{key: key, op: "del", ask: command("DEL", key)}
	case 5:
		return call{key: key, op: "zpopmin", ask: command("ZPOPMIN", key)}
	}
	return call{key: key, op: "zscore", args: []string{m}, reads: true,
		ask: command("ZSCORE", key, m)}
}

// vanish has the client wait for a member and close its connection: it may have been given one,
// which may come back.
func (a *actor) vanish(key string) {
	took := &event{Actor: a.id, Key: key, Op: "vanish", Call: a.run.now(), What: unknown}
	_, _ = a.conn.Write(resp.AppendCommand(nil, "BZPOPMIN", key, "0"))
	time.Sleep(time.Duration(a.rnd.IntN(5)) * time.Millisecond)
	back := &event{Actor: a.id + 1000, Key: key, Op: "comes back",
		Args: []string{strconv.Itoa(a.id)}, Call: a.run.now(), What: unknown}
	a.disconnect()
	a.id += 2000
	a.keys.Lock()
	a.keys.unknowns += 2
	a.keys.Unlock()
	a.keep(took)
	a.keep(back)
}
