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
//
// A request of a read names one instant, also a transaction: there may be few between two entries.
type Instants = func(lastUs, stampUs int64) (us int64, ok bool)

// instants is the machine's record of the instants that were named.
type instants struct {
	// lastUs is the newest instant that a request named, or one less than the newest entry's
	// WallUs. It is part of the state from commands.LevelSecond on, and 0 below.
	lastUs  int64
	stampUs int64        // Entry.WallUs of the newest applied entry; not part of the state
	shiftMs int64        // what requests see is ahead by: an administrator set the time
	next    func() int64 // advance, made once
}

func (t *instants) advance() int64 {
	t.lastUs++
	return t.lastUs + t.shiftMs*1000
}

const errTime commands.Error = "ERR the time must be milliseconds since 1970"

// maxTimeMs bounds a time that is set: the year 5138.
const maxTimeMs = 1e14

// setTime sets the time of day that requests see from the next one on. What entries carry, and so
// the order of instants among the members, does not change.
func (m *Machine) setTime(env *commands.Env, text []byte) error {
	ms, ok := commands.ParseInt(text)
	if !ok || ms <= 0 || ms > maxTimeMs {
		return errTime
	}
	before := m.time.shiftMs
	m.time.shiftMs = ms - (m.time.lastUs+1)/1000
	env.WallUs += (m.time.shiftMs - before) * 1000
	m.ks.Fold(append([]byte(commands.SettingTime), text...))
	return nil
}

// ShiftMs returns how far an administrator has set the time of day ahead of what entries carry.
func (m *Machine) ShiftMs() int64 { return m.time.shiftMs }

// beginTime sets the time of an entry in env.
func (m *Machine) beginTime(env *commands.Env, e *Entry) {
	env.ClockMs, env.WallUs = m.ks.Now(), e.WallUs
	m.time.stampUs = e.WallUs
	if m.level < commands.LevelSecond {
		return
	}
	env.WallUs += (env.ClockMs - e.ClockMs) * 1000
	m.time.lastUs = max(m.time.lastUs, env.WallUs-1)
	env.WallUs += m.time.shiftMs * 1000
	if m.time.next == nil {
		m.time.next = m.time.advance
	}
	env.NextUs = m.time.next
}

// readInstants are those of a batch of reads.
type readInstants struct {
	us   int64 // what the running request has named; 0: nothing
	late bool  // there is none for it
}

// readTime sets the time of a read in env. With a nil next, instants are later than those of
// entries, but other reads may name the same.
func (m *Machine) readTime(
	env *commands.Env, clockMs, wallUs int64, next Instants,
) (t *readInstants) {
	t = &readInstants{}
	env.ClockMs = max(clockMs, m.ks.Now())
	env.WallUs = wallUs + (env.ClockMs-clockMs)*1000
	if m.level < commands.LevelSecond {
		return t
	}
	lastUs, shiftUs, nowUs := m.time.lastUs, m.time.shiftMs*1000, env.WallUs
	env.WallUs += shiftUs
	env.NextUs = func() int64 {
		switch {
		case t.us != 0 || t.late:
		case next == nil:
			lastUs = max(lastUs+1, nowUs)
			t.us = lastUs
		default:
			us, ok := next(lastUs, m.time.stampUs)
			t.us, t.late = us, !ok
		}
		return t.us + shiftUs
	}
	return t
}

// NewestUs returns the newest instant that an entry named or slightly less, µs since 1970, without
// the shift; 0 if unknown.
func (m *Machine) NewestUs() int64 { return m.time.lastUs }
