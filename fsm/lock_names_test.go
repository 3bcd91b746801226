// What is done to the names of keys that somebody waits for, or locks, is charged by their length:
// they are hashed each time.

package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
)

// bytesOfUnit is how many bytes of a name are a unit at most, each time.
const bytesOfUnit = 64

// Who changes or swaps keys beside waits with long names pays for looking at these, as do the waits
// themselves, and their claims.
func TestLongNamesOfWaitsAreCharged(t *testing.T) {
	const names, long = 100, 10_000
	spent := func(size int) map[string]uint64 {
		all := map[string]uint64{}
		w := newWaitMachine(t)
		others := ""
		for i := range names {
			others += fmt.Sprintf(" %s%d", strings.Repeat("n", size), i)
		}
		fill := lineRequest("SET other x")
		fill.DB = 1
		w.apply(fill)
		w.run("SET last x")
		w.run("LOCK.ACQUIRE first you PX 90000 SHARED")
		lock := fmt.Sprintf("LOCK.ACQUIRE first me PX 90000 WAIT 0 SHARED KEYS %d%s last", names+1,
			others)
		w.wait("n1", 1, lock)
		w.run("HSET first a b")
		all["look at one that waits for a lock"] = w.spent
		w.wait("n1", 3, lock)
		w.apply(lineSystem(commands.SystemLeaveWait + " 3"))
		all["leave"] = w.spent
		w.run("DEL last")
		w.claims("1", "+OK")
		all["claim"] = w.spent
		w.wait("n1", 2, lock) // its owner has the lock by now
		w.apply(lineSystem(commands.SystemDropWaits + " n1"))
		all["drop"] = w.spent
		w.eras["n1"] = w.waiting.eraOf([]byte("n1"))
		w.wait("n1", 4, "BLPOP none 0")
		w.run("SWAPDB 0 1")
		few := w.spent
		w.wait("n1", 5, "BLPOP"+others+" 0")
		w.run("SWAPDB 0 1")
		all["swap databases"] = w.spent - few
		return all
	}
	few, many := spent(1), spent(long)
	for act, units := range few {
		if least := units + names*long/bytesOfUnit; many[act] < least {
			t.Errorf("to %s: %d units, of long names %d, want %d", act, units, many[act], least)
		}
	}
}

// So is who goes by those who wait for a lock to find whose owner has it.
func TestLongNamesOfReentrantWaitsAreCharged(t *testing.T) {
	const names, long = 100, 10_000
	spent := func(size int) uint64 {
		w := newWaitMachine(t)
		line := "LOCK.ACQUIRE k me PX 90000 WAIT 0 REENTRANT KEYS 100"
		for i := range names {
			line += fmt.Sprintf(" %s%d", strings.Repeat("n", size), i)
		}
		w.run("LOCK.ACQUIRE k me PX 90000 REENTRANT")
		w.run("SET " + strings.Repeat("n", size) + "99 x")
		w.wait("n1", 1, "LOCK.ACQUIRE k you PX 90000 WAIT 0")
		w.wait("n1", 2, line)
		w.run("HINCRBY k me 1")
		return w.spent
	}
	few, many := spent(1), spent(long)
	if least := few + 2*names*long/bytesOfUnit; many < least {
		t.Errorf("%d units, of long names %d, want %d", few, many, least)
	}
}

// LOCK commands pay for the names of their keys in each of the places that these come to, and not
// only as arguments.
func TestLongNamesOfLocksAreCharged(t *testing.T) {
	const names, long = 100, 10_000
	lines := []string{"LOCK.ACQUIRE %s me PX 1000 KEYS %d%s", "LOCK.EXTEND %s me PX 2000 KEYS %d%s",
		"LOCK.EXTEND %s me LEASE 1 KEYS %d%s", "LOCK.RELEASE %s me KEYS %d%s",
		"LOCK.ACQUIRE %s me LEASE 1 KEYS %d%s", "LEASE REVOKE 1", "LOCK.STEAL %[1]s you PX 1000",
		"SET %[1]s you LEASE 1"}
	spent := func(size int) (all []uint64) {
		w := newWaitMachine(t)
		w.run("LEASE GRANT 100000")
		keys := []string{}
		for i := range names {
			keys = append(keys, fmt.Sprintf("%s%d", strings.Repeat("n", size), i))
		}
		for _, line := range lines {
			switch strings.Count(line, "%") {
			case 0:
			case 1:
				w.run("LEASE GRANT 100000")
				line = fmt.Sprintf(line, strings.Repeat("n", size*names))
			default:
				line = fmt.Sprintf(line, keys[0], names-1, " "+strings.Join(keys[1:], " "))
			}
			lease := fmt.Sprint(w.leases.Last())
			line = strings.Replace(line, "LEASE 1", "LEASE "+lease, 1)
			line = strings.Replace(line, "REVOKE 1", "REVOKE "+lease, 1)
			if got := w.run(line); strings.HasPrefix(got, "-") || got == ":0" {
				t.Fatal(got)
			}
			all = append(all, w.spent)
		}
		return all
	}
	few, many := spent(1), spent(long)
	for i, line := range lines {
		if least := few[i] + 4*names*long/bytesOfUnit; many[i] < least {
			t.Errorf("%s: %d units, of long names %d, want %d", line, few[i], many[i], least)
		}
	}
}
