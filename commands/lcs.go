// LCS, which finds the longest common subsequence of two strings.

package commands

const (
	errLCSType Error = "ERR The specified keys must contain string values"
	errLCSBoth Error = "ERR If you want both the length and indexes, please just use IDX."
)

// lcsOptions are the options of LCS.
type lcsOptions struct {
	length, indexes, withLengths bool
	least                        int64 // length of a reported match
}

func (o *lcsOptions) parse(args [][]byte) error {
	for i := 0; i < len(args); i++ {
		switch {
		case isWord(args[i], "IDX"):
			o.indexes = true
		case isWord(args[i], "LEN"):
			o.length = true
		case isWord(args[i], "WITHMATCHLEN"):
			o.withLengths = true
		case isWord(args[i], "MINMATCHLEN") && i+1 < len(args):
			i++
			n, ok := ParseInt(args[i])
			if !ok {
				return ErrNotInteger
			}
			o.least = max(n, 0)
		default:
			return ErrSyntax
		}
	}
	if o.indexes && o.length {
		return errLCSBoth
	}
	return nil
}

func lcsCommand(x *Call) error {
	var texts [2][]byte
	for i, key := range x.Args[1:3] {
		e, err := x.findString(key)
		if err != nil {
			return errLCSType
		}
		texts[i] = stringBytes(e)
	}
	var o lcsOptions
	if err := o.parse(x.Args[3:]); err != nil {
		return err
	}
	a, b := texts[0], texts[1]
	x.Spend(len(b))            // for the rows in memory
	x.Spend(len(a) / lcsCells) // for each row, however short
	x.Spend(len(a) / lcsCells * len(b))
	x.Spend(len(a) % lcsCells * len(b) / lcsCells)
	t := newLCSTable(a, b)
	switch {
	case o.length:
		x.Out.Int(t.length)
	case o.indexes:
		x.Out.Map(2)
		x.Out.BulkString("matches")
		matches := t.matches(o.least)
		x.Spend(len(matches))
		x.Out.Array(len(matches))
		for _, m := range matches {
			m.reply(x, o.withLengths)
		}
		x.Out.BulkString("len")
		x.Out.Int(t.length)
	default:
		x.Out.Bulk(t.text())
	}
	return nil
}

// lcsCells is how many cells of the table one unit of work fills.
const lcsCells = 8

// lcsTable says how to walk back through two strings along a longest common subsequence.
type lcsTable struct {
	a, b   []byte
	length int64
	// up has a bit for each pair of prefixes: whether the subsequence gets shorter by leaving out
	// the last byte of b rather than that of a
	up []uint64
}

func newLCSTable(a, b []byte) *lcsTable {
	t := &lcsTable{a: a, b: b, up: make([]uint64, (len(a)*len(b)+63)/64)}
	above, row := make([]uint32, len(b)+1), make([]uint32, len(b)+1)
	for i := range a {
		for j := range b {
			switch {
			case a[i] == b[j]:
				row[j+1] = above[j] + 1
			case above[j+1] > row[j]:
				row[j+1] = above[j+1]
				at := i*len(b) + j
				t.up[at/64] |= 1 << (at % 64)
			default:
				row[j+1] = row[j]
			}
		}
		above, row = row, above
	}
	t.length = int64(above[len(b)])
	return t
}

// walk calls match with the places of the bytes of the subsequence, the last first.
func (t *lcsTable) walk(match func(i, j int)) {
	for i, j := len(t.a)-1, len(t.b)-1; i >= 0 && j >= 0; {
		at := i*len(t.b) + j
		switch {
		case t.a[i] == t.b[j]:
			match(i, j)
			i, j = i-1, j-1
		case t.up[at/64]>>(at%64)&1 != 0:
			i--
		default:
			j--
		}
	}
}

// text returns the subsequence.
func (t *lcsTable) text() []byte {
	text := make([]byte, t.length)
	at := len(text)
	t.walk(func(i, _ int) {
		at--
		text[at] = t.a[i]
	})
	return text
}

// lcsMatch is a part that both strings have, by the places of its first byte.
type lcsMatch struct{ a, b, n int }

// matches returns the parts that make up the subsequence, the last first, if they are long enough.
func (t *lcsTable) matches(least int64) (list []lcsMatch) {
	var m lcsMatch
	end := func() {
		if m.n > 0 && int64(m.n) >= least {
			list = append(list, m)
		}
	}
	t.walk(func(i, j int) {
		if m.n > 0 && i == m.a-1 && j == m.b-1 {
			m.a, m.b, m.n = i, j, m.n+1
			return
		}
		end()
		m = lcsMatch{i, j, 1}
	})
	end()
	return list
}

func (m lcsMatch) reply(x *Call, withLength bool) {
	if withLength {
		x.Out.Array(3)
	} else {
		x.Out.Array(2)
	}
	for _, first := range []int{m.a, m.b} {
		x.Out.Array(2)
		x.Out.Int(int64(first))
		x.Out.Int(int64(first + m.n - 1))
	}
	if withLength {
		x.Out.Int(int64(m.n))
	}
}
