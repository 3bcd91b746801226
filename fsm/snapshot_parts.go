// The parts of a snapshot that are there only if the state has something of them.

package fsm

import (
	"encoding/binary"
	"errors"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/leases"
	"github.com/coordd/coordd/commands/once"
	"github.com/coordd/coordd/commands/subscriptions"
	"github.com/coordd/coordd/internal/wire"
)

// Bits of header.parts.
const (
	partWaits       = 1 << iota // what waits
	partVerdicts                // scripts that were refused
	partShift                   // instants.shiftMs, if it is not 0
	partTimes                   // commands.Env.Times, if it is above 1
	partSubscribers             // counts of subscribers, several records
	partIDBlocks                // header.blocks is not 0; it has no record
	partLocks                   // those who wait for locks, and what is not claimed
	partLeases                  // leases, several records
	partOnce                    // requests that run once, several records
	knownParts      = 1<<iota - 1
)

// snapshotPart is one of them.
type snapshotPart struct {
	bit uint64
	// freeze returns what writes its records, while the machine goes on; nil: there is nothing.
	freeze func(m *Machine) (write func(record func([]byte)))
	// restore reads the same number of records by next.
	restore func(m *Machine, next func() []byte) error
}

// snapshotParts are in the order of their records.
var snapshotParts = [...]snapshotPart{
	{partWaits, func(m *Machine) func(func([]byte)) {
		if m.waiting.empty() {
			return nil
		}
		frozen := m.waiting.freeze()
		return func(record func([]byte)) { record(frozen.appendTo(nil)) }
	}, func(m *Machine, next func() []byte) error { return m.waiting.restore(next()) }},

	{partLocks, func(m *Machine) func(func([]byte)) {
		if m.waiting.locks.empty() {
			return nil
		}
		frozen := m.waiting.freezeLocks()
		return func(record func([]byte)) { record(frozen.appendLocks(nil)) }
	}, func(m *Machine, next func() []byte) error { return m.waiting.restoreLocks(next()) }},

	{partVerdicts, func(m *Machine) func(func([]byte)) {
		return oneRecord(m.engine.AppendVerdicts(nil))
	}, func(m *Machine, next func() []byte) error { return m.engine.RestoreVerdicts(next()) }},

	{partShift, func(m *Machine) func(func([]byte)) {
		if m.time.shiftMs == 0 {
			return nil
		}
		return oneRecord(binary.AppendVarint(nil, m.time.shiftMs))
	}, func(m *Machine, next func() []byte) error {
		c := wire.NewCursor(next())
		if m.time.shiftMs = c.Varint(); !c.Done() || m.time.shiftMs == 0 {
			return errors.New("its time is invalid")
		}
		return nil
	}},

	{partTimes, func(m *Machine) func(func([]byte)) {
		if m.times <= 1 {
			return nil
		}
		return oneRecord(binary.AppendUvarint(nil, m.times))
	}, func(m *Machine, next func() []byte) error {
		c := wire.NewCursor(next())
		m.times = c.Uvarint()
		if !c.Done() || m.times < 2 || m.times > commands.MostRequestWork {
			return errors.New("what requests may do is invalid")
		}
		return nil
	}},

	{partSubscribers, func(m *Machine) func(func([]byte)) {
		if m.subscribers.Empty() {
			return nil
		}
		return m.subscribers.Freeze().Records
	}, func(m *Machine, next func() []byte) (err error) {
		m.subscribers, err = subscriptions.Restore(next)
		return err
	}},

	{partLeases, func(m *Machine) func(func([]byte)) {
		if m.leases.Empty() {
			return nil
		}
		return m.leases.Freeze().Records
	}, func(m *Machine, next func() []byte) (err error) {
		m.leases, err = leases.Restore(next)
		return err
	}},

	{partOnce, func(m *Machine) func(func([]byte)) {
		if m.once.Len() == 0 {
			return nil
		}
		return m.once.Freeze().Records
	}, func(m *Machine, next func() []byte) (err error) {
		m.once, err = once.Restore(next, m.ks.Now())
		return err
	}},
}

// oneRecord returns what writes a record; nil: there is none.
func oneRecord(b []byte) func(record func([]byte)) {
	if b == nil {
		return nil
	}
	return func(record func([]byte)) { record(b) }
}
