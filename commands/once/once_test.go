package once_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/once"
	"github.com/coordd/coordd/internal/tests/seeds"
	"github.com/coordd/coordd/internal/wire"
)

func text(s string) once.Reply {
	return once.Reply{Call: 7, Proto: 2, Bytes: []byte("+" + s + "\r\n")}
}

// has fails unless the ids, and no others of r0 to r9, are remembered.
func has(t *testing.T, c *once.Calls, by once.User, nowMs int64, ids ...string) {
	t.Helper()
	for i := range 10 {
		id := fmt.Sprint("r", i)
		if got := c.Find(by, []byte(id), nowMs) != nil; got != slices.Contains(ids, id) {
			t.Errorf("%s of %+v at %d is remembered: %v", id, by, nowMs, got)
		}
	}
}

// A call is remembered for its time, swept or not, and for its user alone.
func TestTime(t *testing.T) {
	c, u := once.New(), once.User{Name: "u", Created: 1}
	c.Remember(u, []byte("r1"), text("a"), 1000)
	c.Remember(u, []byte("r2"), text("b"), 1001)
	has(t, c, u, 1000+once.LifeMs, "r1", "r2")
	has(t, c, u, 1001+once.LifeMs, "r2")
	for _, other := range []once.User{{Name: "u", Created: 2}, {Name: "v", Created: 1}} {
		has(t, c, other, 1001)
	}
	bytes := c.Bytes()
	c.Sweep(1000+once.LifeMs, 10)
	if c.Len() != 2 || c.Bytes() != bytes {
		t.Errorf("%d calls of %d bytes after a sweep in their time", c.Len(), c.Bytes())
	}
	c.Sweep(2000+once.LifeMs, 1)
	if c.Len() != 1 {
		t.Errorf("%d calls after a sweep of one", c.Len())
	}
	c.Sweep(2000+once.LifeMs, 10)
	if c.Len() != 0 || c.Bytes() != 0 {
		t.Errorf("%d calls of %d bytes after all are over", c.Len(), c.Bytes())
	}
}

// Past a bound the oldest is forgotten: of the user, or of the one whose calls count most.
func TestBounds(t *testing.T) {
	c, u, v := once.New(), once.User{Name: "u"}, once.User{Name: "v"}
	c.Remember(u, []byte("r0"), text("x"), 1)
	each := c.Bytes()
	c.SetBounds(3, 1<<20)
	c.Remember(v, []byte("r0"), text("x"), 1)
	for i := 1; i < 6; i++ {
		c.Remember(u, []byte(fmt.Sprint("r", i)), text("x"), 1)
	}
	has(t, c, u, 1, "r3", "r4", "r5")
	has(t, c, v, 1, "r0")
	c.Remember(u, []byte("r3"), text("again"), 1) // it is the newest now
	c.Remember(u, []byte("r6"), text("x"), 1)
	has(t, c, u, 1, "r3", "r5", "r6")

	c = once.New()
	c.SetBounds(100, 3*each)
	c.Remember(v, []byte("r0"), text("x"), 1)
	for i := range 6 {
		c.Remember(u, []byte(fmt.Sprint("r", i)), text("x"), 1)
		if c.Bytes() > 3*each {
			t.Errorf("%d bytes", c.Bytes())
		}
	}
	has(t, c, v, 1, "r0") // it is the oldest, but not of the user who sends many
	if c.Find(u, []byte("r0"), 1) != nil || c.Find(u, []byte("r5"), 1) == nil {
		t.Error("not the oldest of the user with most was forgotten")
	}
	for i := range 6 {
		c.Remember(v, []byte(fmt.Sprint("r", i)), text("x"), 1)
	}
	if c.Find(u, []byte("r5"), 1) == nil || c.Find(v, []byte("r5"), 1) == nil {
		t.Error("users do not share")
	}
	for i := range 6 {
		c.Forget(u, []byte(fmt.Sprint("r", i)))
		c.Forget(v, []byte(fmt.Sprint("r", i)))
	}
	if c.Forget(u, []byte("r1")) || c.Bytes() != 0 || c.Len() != 0 {
		t.Errorf("%d calls of %d bytes are left", c.Len(), c.Bytes())
	}
}

// A reply has the types of the protocol that asks.
func TestProtocols(t *testing.T) {
	for _, c := range []struct {
		proto    int
		in, want string
	}{
		{2, "$-1\r\n", "_\r\n"}, {2, "*-1\r\n", "_\r\n"},
		{2, "*2\r\n:1\r\n$-1\r\n", "*2\r\n:1\r\n_\r\n"}, {2, "-ERR x\r\n", "-ERR x\r\n"},
		{3, "_\r\n", "$-1\r\n"}, {3, "%1\r\n+a\r\n,1.5\r\n", "*2\r\n+a\r\n$3\r\n1.5\r\n"},
		{3, "#t\r\n", ":1\r\n"}, {3, "=5\r\ntxt:a\r\n", "$1\r\na\r\n"},
	} {
		r := once.Reply{Proto: c.proto, Bytes: []byte(c.in)}
		if got := string(r.In(c.proto)); got != c.in {
			t.Errorf("%q in its own protocol is %q", c.in, got)
		}
		if got := string(r.In(5 - c.proto)); got != c.want {
			t.Errorf("%q is %q, want %q", c.in, got, c.want)
		}
	}
}

func records(c *once.Calls) (all [][]byte) {
	c.Freeze().Records(func(r []byte) { all = append(all, bytes.Clone(r)) })
	return all
}

func restored(all [][]byte, nowMs int64) (*once.Calls, error) {
	return once.Restore(func() []byte {
		if len(all) == 0 {
			return nil
		}
		r := all[0]
		all = all[1:]
		return r
	}, nowMs)
}

// model is what Calls must remember, kept in the simplest way.
type model struct {
	calls     []modelCall // oldest first
	userCalls int
}

type modelCall struct {
	by   once.User
	id   string
	atMs int64
	r    once.Reply
}

func (m *model) forget(by once.User, id string) {
	m.calls = slices.DeleteFunc(m.calls, func(c modelCall) bool { return c.by == by && c.id == id })
}

func (m *model) remember(by once.User, id string, r once.Reply, nowMs int64) {
	m.forget(by, id)
	m.calls = append(m.calls, modelCall{by, id, nowMs, r})
	own := func(c modelCall) bool { return c.by == by }
	n := 0
	for _, c := range m.calls {
		if own(c) {
			n++
		}
	}
	if n > m.userCalls {
		at := slices.IndexFunc(m.calls, own)
		m.calls = slices.Delete(m.calls, at, at+1)
	}
}

// Random calls are remembered as by a model; in the middle they are written and read back.
func TestRandom(t *testing.T) {
	g := rand.New(rand.NewPCG(seeds.Of(t), 1))
	c, m := once.New(), &model{userCalls: 5}
	c.SetBounds(5, once.MaxBytes)
	now := int64(1)
	for range 20_000 {
		now += g.Int64N(8000)
		by := once.User{Name: fmt.Sprint("u", g.IntN(3)), Created: g.Uint64N(2)}
		id := fmt.Sprint("r", g.IntN(12))
		switch g.IntN(10) {
		case 0, 1, 2, 3, 4:
			r := text(strings.Repeat("x", g.IntN(100)))
			r.Call, r.Proto = g.Uint64(), 2+g.IntN(2)
			if g.IntN(9) == 0 {
				r.Bytes = nil
			}
			c.Remember(by, []byte(id), r, now)
			m.remember(by, id, r, now)
		case 5:
			c.Forget(by, []byte(id))
			m.forget(by, id)
		case 6:
			c.Sweep(now, g.IntN(4))
		case 7:
			if g.IntN(20) == 0 && c.Len() > 0 {
				all, bytes := records(c), c.Bytes()
				again, err := restored(all, now)
				if err != nil || again.Bytes() != bytes || again.Len() != c.Len() {
					t.Fatalf("%d calls of %d bytes are restored as %+v, %v", c.Len(), bytes, again,
						err)
				}
				if !slices.EqualFunc(records(again), all, slices.Equal) {
					t.Fatal("the records of a restored one differ")
				}
				again.SetBounds(5, once.MaxBytes)
				c = again
			}
		default:
			at := slices.IndexFunc(m.calls, func(c modelCall) bool {
				return c.by == by && c.id == id
			})
			r := c.Find(by, []byte(id), now)
			switch there := at >= 0 && now-m.calls[at].atMs <= once.LifeMs; {
			case there != (r != nil):
				t.Fatalf("%s of %+v at %d is remembered: %v", id, by, now, r != nil)
			case there && (!bytes.Equal(r.Bytes, m.calls[at].r.Bytes) ||
				(r.Bytes == nil) != (m.calls[at].r.Bytes == nil) || r.Call != m.calls[at].r.Call ||
				r.Proto != m.calls[at].r.Proto):
				t.Fatalf("%s has the reply %+v, want %+v", id, r, m.calls[at].r)
			}
		}
	}
}

// Corrupt records are refused, and every change of a byte is, or gives other calls.
func TestCorruptRecords(t *testing.T) {
	c, u := once.New(), once.User{Name: "u", Created: 3}
	c.Remember(u, []byte("r1"), text("a"), 10)
	c.Remember(u, []byte("r2"), once.Reply{Proto: 3, Call: 1}, 20)
	c.Remember(once.User{Name: "v"}, []byte("r1"), text("c"), 20)
	good := records(c)
	if _, err := restored(good, 20); err != nil {
		t.Fatal(err)
	}
	if _, err := restored(good, 19); err == nil {
		t.Error("a call of the future is taken")
	}
	for cut := range good[1] {
		if _, err := restored([][]byte{good[0], good[1][:cut]}, 20); err == nil {
			t.Errorf("%d bytes are taken for all", cut)
		}
	}
	if _, err := restored([][]byte{good[0], append(bytes.Clone(good[1]), 0)}, 20); err == nil {
		t.Error("a byte more is taken")
	}
	item := func(number uint64, name, id string, at, proto int, reply string) []byte {
		b := binary.AppendUvarint(nil, number)
		if name != "" {
			b = binary.AppendUvarint(wire.AppendBytes(b, name), 1)
		}
		b = binary.AppendUvarint(wire.AppendBytes(b, id), uint64(at))
		b = append(binary.LittleEndian.AppendUint64(b, 9), byte(proto))
		return wire.AppendBytes(b, reply)
	}
	first := item(1, "u", "r1", 5, 2, "+a\r\n")
	for what, second := range map[string][]byte{
		"":                 item(1, "", "r2", 5, 2, ""),
		"an id twice":      item(1, "", "r1", 5, 2, ""),
		"a user twice":     item(2, "u", "r2", 5, 2, ""),
		"no user":          item(0, "", "r2", 5, 2, ""),
		"a far user":       item(3, "x", "r2", 5, 2, ""),
		"no id":            item(1, "", "", 5, 2, ""),
		"a long id":        item(1, "", strings.Repeat("x", 129), 5, 2, ""),
		"an older call":    item(1, "", "r2", 4, 2, ""),
		"another protocol": item(1, "", "r2", 5, 4, ""),
		"half a reply":     item(1, "", "r2", 5, 2, "+a\r"),
		"two replies":      item(1, "", "r2", 5, 2, "+a\r\n+b\r\n"),
		"a long reply":     item(1, "", "r2", 5, 2, "+"+strings.Repeat("x", 16<<10)+"\r\n"),
	} {
		if _, err := restored([][]byte{{2}, slices.Concat(first, second)}, 20); (err == nil) !=
			(what == "") {
			t.Errorf("%q: %v", what, err)
		}
	}
	for _, head := range [][]byte{nil, {0}, {1}, {9}, {2, 2}} {
		if _, err := restored([][]byte{head, slices.Concat(first, item(1, "", "r2", 5, 2, ""))},
			20); err == nil {
			t.Errorf("head %v is taken", head)
		}
	}
}

// A frozen copy does not change, and needs several records for much.
func TestFreeze(t *testing.T) {
	c, u := once.New(), once.User{Name: "u"}
	long := text(strings.Repeat("x", 10_000))
	for i := range 300 {
		c.Remember(u, fmt.Append(nil, i), long, int64(i))
	}
	z, want := c.Freeze(), records(c)
	if len(want) < 3 {
		t.Errorf("%d records", len(want))
	}
	c.Sweep(1<<40, 200)
	c.Remember(u, []byte("299"), text("other"), 1<<40)
	var got [][]byte
	z.Records(func(r []byte) { got = append(got, bytes.Clone(r)) })
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Error("a frozen copy has changed")
	}
	if again, err := restored(want, 1<<40); err != nil || again.Len() != 300 {
		t.Errorf("%v, %v", again, err)
	}
}
