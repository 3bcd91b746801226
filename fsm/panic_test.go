// A request that meets a bug gets an internal error, on every node alike, and nothing else ends.

package fsm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
	"github.com/coordd/coordd/server"
)

// brokenTable has commands with a bug at each place that Apply reaches for a request.
func brokenTable() *commands.Table {
	broken := func(name string, change func(s *commands.Spec)) commands.Spec {
		s := commands.Spec{Name: name, Kind: commands.Write, Arity: -2, Group: "string",
			Since: "next", Keys: commands.KeySpec{First: 1, Last: 1, Step: 1,
				Flags: commands.KeyRW | commands.KeyUpdate}, Syntax: "key", Summary: "s",
			Complexity: "O(1)",
			Handler:    func(x *commands.Call) error { x.Out.Status("OK"); return nil }}
		change(&s)
		return s
	}
	return commands.NewTable(commands.Specs(), server.Specs(), []commands.Spec{
		broken("bughandler", func(s *commands.Spec) {
			s.Handler = func(*commands.Call) error { panic("in its handler") }
		}),
		broken("buglimit", func(s *commands.Spec) {
			s.Grows = func(*commands.Call) bool { panic("where its growth is asked") }
		}),
		broken("bugserved", func(s *commands.Spec) {
			s.Waits, s.Arity, s.Keys.Last = commands.AlwaysWaits, -3, -2
			s.Handler = func(x *commands.Call) error {
				if x.Tx.Woken {
					panic("when it is served")
				}
				x.Block(0, nil)
				return nil
			}
		}),
	})
}

// applyCaught is Apply, with a panic as an error.
func applyCaught(m *Machine, e *Entry, answer bool) (r Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("Apply panics: %v", p)
		}
	}()
	return m.Apply(1, e, answer)
}

func TestPanicsAreAnswered(t *testing.T) {
	for _, c := range []struct{ name, lines string }{
		{"handler", "bughandler k"},
		{"handler in a transaction", "multi bughandler k"},
		{"limit", "buglimit k"},
		{"limit in a transaction", "multi buglimit k"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var text string
			var alarms int
			machines := [2]*Machine{}
			for i := range machines {
				m := newestMachine(brokenTable())
				m.alarm = func(p any) { text, alarms = fmt.Sprint(p), alarms+1 }
				batch := settingOf("", 0, commands.SettingMaxMemory, "1")
				line, multi := strings.CutPrefix(c.lines, "multi ")
				q := lineRequest(line)
				q.Multi = multi
				for _, q := range []commands.Request{lineRequest("set before 1"), q,
					lineRequest("del before")} {
					batch = commands.AppendRequest(batch, &q)
				}
				e := &Entry{ClockMs: 1, WallUs: 1, Batches: [][]byte{batch}}
				r, err := applyCaught(m, e, i == 0)
				if err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					all, err := commandtest.ParseAll(r.Replies[0])
					if err != nil || len(all) != 4 ||
						!strings.Contains(fmt.Sprint(all[2]), "ERR internal error") ||
						strings.Contains(fmt.Sprint(all[3]), "error") {
						t.Errorf("replies %v %v", all, err)
					}
				}
				machines[i] = m
			}
			if alarms != 2 || text == "" {
				t.Errorf("%d alarms: %q", alarms, text)
			}
			if machines[0].Sum() != machines[1].Sum() {
				t.Error("the machines differ")
			}
		})
	}
}

// TestPanicOfServedCommand: who waits with a command that panics when it is served gets the error,
// and who waits behind it is served.
func TestPanicOfServedCommand(t *testing.T) {
	w := &waitMachine{t: t, Machine: newestMachine(brokenTable()), term: 1, clock: 1000,
		eras: map[string]uint64{"n1": 1}}
	w.SetNode("n1")
	w.apply()
	w.wait("n1", 1, "bugserved q 0")
	w.wait("n1", 2, "BLPOP q 0")
	alarms := 0
	w.alarm = func(any) { alarms++ }
	q := lineRequest("RPUSH q x")
	r, err := w.Apply(w.Index()+1, &Entry{Term: 1, ClockMs: 1000, WallUs: 1,
		Batches: [][]byte{commands.AppendRequest(nil, &q)}}, true)
	if err != nil {
		t.Fatal(err)
	}
	got := map[uint64]string{}
	for _, e := range r.Events {
		if e.Kind == commands.Served {
			got[e.Wait] = string(e.Payload)
		}
	}
	if alarms != 1 || !strings.HasPrefix(got[1], "-ERR internal error") ||
		got[2] != "*2\r\n$1\r\nq\r\n$1\r\nx\r\n" || w.Waits(1) || w.Waits(2) {
		t.Errorf("%d alarms, served %v", alarms, got)
	}
}
