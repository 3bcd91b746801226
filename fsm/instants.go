package fsm

// This file holds what the machine knows of the time of day: the instants that TIME answers rise strictly from request to request, over
// entries, leaders, snapshots and restarts (docs/adr/0016-the-time-of-day.md).

import "github.com/coordd/coordd/commands"

// Instants gives a read the instant that it names, µs since 1970: later than lastUs, the newest that an entry named, and than any it gave
// before, and no later than what entries to come name. stampUs is the Entry.WallUs of the newest applied entry, 0 where none was since the machine
// was restored. ok is false where there is no such instant now; the read has to come again when an entry has been applied.
type Instants = func(lastUs, stampUs int64) (us int64, ok bool)

// instants is a machine's part of that.
type instants struct {
	lastUs  int64        // the newest instant that a request named, or one below the newest entry's WallUs. Part of the state from LevelBounded on, 0 before
	stampUs int64        // WallUs of the newest applied entry, no part of the state
	next    func() int64 // advance
}

func (t *instants) advance() int64 {
	t.lastUs++
	return t.lastUs
}

// beginTime tells env the time of an entry.
func (m *Machine) beginTime(env *commands.Env, e *Entry) {
	env.ClockMs, env.WallUs = m.ks.Now(), e.WallUs
	m.time.stampUs = e.WallUs
	if m.level < commands.LevelBounded {
		return
	}
	env.WallUs += (env.ClockMs - e.ClockMs) * 1000
	m.time.lastUs = max(m.time.lastUs, env.WallUs-1)
	if m.time.next == nil {
		m.time.next = m.time.advance
	}
	env.NextUs = m.time.next
}

// readTime tells env the time of a read, and returns whether an instant was wanting. next may be nil: then its instants are later than
// those of the entries, and other reads may be given the same.
func (m *Machine) readTime(env *commands.Env, clockMs, wallUs int64, next Instants) (late *bool) {
	late = new(bool)
	env.ClockMs = max(clockMs, m.ks.Now())
	env.WallUs = wallUs + (env.ClockMs-clockMs)*1000
	if m.level < commands.LevelBounded {
		return late
	}
	lastUs := m.time.lastUs
	env.NextUs = func() int64 {
		if next == nil {
			lastUs = max(lastUs+1, env.WallUs)
			return lastUs
		}
		us, ok := next(lastUs, m.time.stampUs)
		*late = *late || !ok
		return us
	}
	return late
}

// NewestUs is the newest instant that an entry named, or an earlier one that is close to it, µs since 1970; 0 where none is known.
func (m *Machine) NewestUs() int64 { return m.time.lastUs }
