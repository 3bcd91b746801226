package cluster

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/internal/invariant"
)

// Tests break what members compare and what is on the disk, and speak in the name of members.
func init() {
	invariant.Ends = func(name string) bool { return name == entriesInOrder.Name }
}

// breaks reports whether act breaks a rule, by a panic, since it is one that tests do not break.
func breaks(r *invariant.Rule, act func()) (broken bool) {
	defer func() { broken = recover() == r.Name+" does not hold" }()
	act()
	return false
}

func TestEntriesInOrder(t *testing.T) {
	for name, second := range map[string]raft.Log{
		"again":        {Index: 5, Term: 2},
		"earlier":      {Index: 4, Term: 2},
		"a lower term": {Index: 6, Term: 1},
	} {
		machine := newToy()
		a := newApplier(machine, testLogger())
		entry := machine.AppendEntry(nil, 100, 0, [][]byte{[]byte("w")})
		a.Apply(&raft.Log{Index: 5, Term: 2, Data: entry})
		second.Data = entry
		if !breaks(entriesInOrder, func() { a.Apply(&second) }) {
			t.Errorf("%s: it is applied", name)
		}
	}
}

func TestOneLeader(t *testing.T) {
	var seen termLeader
	for _, leads := range []struct {
		id   string
		term uint64
	}{{"n1", 1}, {"n1", 1}, {"n2", 2}, {"n1", 3}, {"n2", 2}} {
		seen.leads(leads.id, leads.term)
	}
	before := oneLeader.Times()
	seen.leads("n2", 3)
	if oneLeader.Times() != before+1 {
		t.Error("two leaders of a term are not seen")
	}
}
