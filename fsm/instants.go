// The machine's part of the time of day: the instants that TIME returns strictly increase from
// request to request, across entries, leaders, snapshots and restarts
// (docs/adr/0016-the-time-of-day.md).

package fsm

import "github.com/coordd/coordd/commands"

// Instants returns the instant that a read names, µs since 1970: later than lastUs, the newest that
// an entry named, and than any that it returned before; earlier than what later entries name.
// stampUs is Entry.WallUs of the newest applied entry, 0 if none was applied since the machine was
// restored. If ok is false there is no such instant now, and the read must be retried after the
// next entry.
type Instants = func(lastUs, stampUs int64) (us int64, ok bool)

// instants is the machine's record of the instants that were named.
type instants struct {
	// lastUs is the newest instant that a request named, or one less than the newest entry's
	// WallUs. It is part of the state from commands.LevelBounded on, and 0 below.
	lastUs  int64
	stampUs int64        // Entry.WallUs of the newest applied entry; not part of the state
	next    func() int64 // advance, made once
}

func (t *instants) advance() int64 {
	t.lastUs++
	return t.lastUs
}

// beginTime sets the time of an entry in env.
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

// readTime sets the time of a read in env. *late becomes true once next has no instant. With a nil
// next, instants are later than those of entries, but other reads may name the same.
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

// NewestUs returns the newest instant that an entry named or slightly less, µs since 1970; 0 if
// unknown.
func (m *Machine) NewestUs() int64 { return m.time.lastUs }
