// CLUSTER SLOT-STATS of Redis 8.2.

package commands

import (
	"slices"

	"github.com/coordd/coordd/commands/keyspace"
)

const (
	errSlotRange  Error = "ERR Invalid or out of range slot"
	errSlotMetric Error = "ERR Unrecognized sort metric for ORDERBY."
	errSlotLimit  Error = "ERR Limit has to lie in between 1 and 16384 (maximum number of slots)."
	errSlotTwice  Error = "ERR Multiple filters of the same type are disallowed."
)

// SlotStats is the handler of CLUSTER SLOT-STATS. Only the number of keys is known by slot, which
// is what Redis tells unless cluster-slot-stats-enabled is set.
func SlotStats(x *Call) error {
	var a slotStatsArgs
	if err := a.parse(x); err != nil {
		return err
	}
	elements := 5 * (a.last - a.first + 1)
	if a.ordered {
		elements = 5 * a.limit
		x.Spend(2 * Slots) // to sort them
	}
	x.Expect(elements, elements)
	var keys [Slots]int
	x.eachWithSlot(func(_ *keyspace.Entry, slot int) bool {
		keys[slot]++
		return true
	})
	slots := make([]int, 0, a.last-a.first+1)
	for slot := a.first; slot <= a.last; slot++ {
		slots = append(slots, slot)
	}
	if a.ordered {
		slices.SortStableFunc(slots, func(s, t int) int {
			if a.ascending {
				return keys[s] - keys[t]
			}
			return keys[t] - keys[s]
		})
		slots = slots[:a.limit]
	}
	x.Out.Array(len(slots))
	for _, slot := range slots {
		x.Out.Array(2)
		x.Out.Int(int64(slot))
		x.Out.Map(1)
		x.Out.BulkString("key-count")
		x.Out.Int(int64(keys[slot]))
	}
	return nil
}

// slotStatsArgs are the arguments of CLUSTER SLOT-STATS.
type slotStatsArgs struct {
	first, last int
	ordered     bool // by the number of keys
	ascending   bool
	limit       int
}

func (a *slotStatsArgs) parse(x *Call) error {
	args := x.Args[2:]
	switch {
	case isWord(args[0], "SLOTSRANGE") && len(args) == 3:
		first, ok := ParseInt(args[1])
		last, also := ParseInt(args[2])
		switch {
		case !ok || !also || first < 0 || last < 0 || first >= Slots || last >= Slots:
			return errSlotRange
		case first > last:
			return Errorf("ERR Start slot number %d is greater than end slot number %d", first,
				last)
		}
		a.first, a.last = int(first), int(last)
		return nil
	case isWord(args[0], "ORDERBY"):
		a.last, a.ordered, a.limit = Slots-1, true, Slots
		if !isWord(args[1], "KEY-COUNT") {
			return errSlotMetric
		}
		return a.parseOrder(args[2:])
	}
	return SubcommandSyntax(x.Args)
}

// parseOrder parses what follows the metric: LIMIT, and ASC or DESC, each once.
func (a *slotStatsArgs) parseOrder(args [][]byte) error {
	for limited, directed := false, false; len(args) > 0; args = args[1:] {
		twice := directed
		switch {
		case isWord(args[0], "LIMIT") && len(args) > 1:
			n, ok := ParseInt(args[1])
			if !ok || n < 1 || n > Slots {
				return errSlotLimit
			}
			twice, limited = limited, true
			a.limit, args = int(n), args[1:]
		case isWord(args[0], "ASC"), isWord(args[0], "DESC"):
			a.ascending, directed = isWord(args[0], "ASC"), true
		default:
			return ErrSyntax
		}
		if twice {
			return errSlotTwice
		}
	}
	return nil
}
