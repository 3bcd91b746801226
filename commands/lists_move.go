// LMOVE, LMOVEM and RPOPLPUSH, and the blocking forms BLMOVE, BLMOVEM and BRPOPLPUSH.

package commands

import (
	"slices"

	"github.com/coordd/coordd/commands/keyspace"
)

// listMove moves an element from an end of one list to an end of another.
type listMove struct{ from, to listEnd }

// parseMove parses the words for the two ends.
func parseMove(from, to []byte) (m listMove, err error) {
	if m.from, err = parseEnd(from); err != nil {
		return m, err
	}
	m.to, err = parseEnd(to)
	return m, err
}

// run moves an element from the list at the first key to the list at the second and replies with
// it. moved is false if there is no list to take from.
func (m listMove) run(x *Call) (moved bool, err error) {
	source, destination := x.Args[1], x.Args[2]
	_, l, err := findFilled(x, x.Args[1:2], findList)
	if err != nil || l == nil {
		return false, err
	}
	if _, err := findList(x, destination); err != nil {
		return false, err
	}
	position, _ := m.from.span(l, 1)
	value := l.At(position)
	x.Out.BulkString(value) // first: a refused reply must move nothing
	// Both changes come before both notifications: the two keys may be one list, which must not
	// disappear in between.
	src, from := editList(x, source)
	from.RemoveRange(position, position)
	dst, to := editList(x, destination)
	m.to.push(to, []byte(value))
	x.changed(dst, NotifyList, m.to.pushed())
	x.changed(src, NotifyList, m.from.popped())
	return true, nil
}

// runOrNull is run that replies null if there is nothing to move.
func (m listMove) runOrNull(x *Call) error {
	moved, err := m.run(x)
	if err == nil && !moved {
		x.Out.Null()
	}
	return err
}

// runOrBlock is run that waits if there is nothing to move.
func (m listMove) runOrBlock(x *Call, timeout []byte) error {
	timeoutMs, err := x.timeoutSeconds(timeout)
	if err != nil {
		return err
	}
	if !x.mayBlock() {
		return m.runOrNull(x)
	}
	moved, err := m.run(x)
	if err == nil && !moved {
		x.Block(timeoutMs, nil)
	}
	return err
}

func lmove(x *Call) error {
	m, err := parseMove(x.Args[3], x.Args[4])
	if err != nil {
		return err
	}
	return m.runOrNull(x)
}

func blmove(x *Call) error {
	m, err := parseMove(x.Args[3], x.Args[4])
	if err != nil {
		return err
	}
	return m.runOrBlock(x, x.Args[5])
}

func rpoplpush(x *Call) error { return listMove{rightEnd, leftEnd}.runOrNull(x) }

func brpoplpush(x *Call) error { return listMove{rightEnd, leftEnd}.runOrBlock(x, x.Args[3]) }

// moveArgs are the arguments of LMOVEM, and of BLMOVEM without its timeout.
type moveArgs struct {
	listMove
	count   int64
	exactly bool // nothing if there are fewer
	turned  bool // OBO to the end that they come from: the newest is outermost
}

func (a *moveArgs) parse(args [][]byte) (err error) {
	if a.listMove, err = parseMove(args[3], args[4]); err != nil {
		return err
	}
	return a.parseCount(args[5:])
}

// parseCount parses what follows the words for the ends.
func (a *moveArgs) parseCount(args [][]byte) error {
	a.count = 1
	switch {
	case len(args) == 0:
		return nil
	case len(args) != 3:
		return ErrSyntax
	}
	a.exactly = isWord(args[0], "EXACTLY")
	oneByOne := isWord(args[2], "OBO")
	if !a.exactly && !isWord(args[0], "COUNT") || !oneByOne && !isWord(args[2], "BULK") {
		return ErrSyntax
	}
	a.turned = oneByOne && a.from == a.to
	var ok bool
	if a.count, ok = ParseInt(args[1]); !ok || a.count < 1 {
		return errCountPositive
	}
	return nil
}

func lmovem(x *Call) error {
	var a moveArgs
	if err := a.parse(x.Args); err != nil {
		return err
	}
	l, err := findList(x, x.Args[1])
	switch {
	case err != nil:
		return err
	case a.exactly && int64(l.Len()) < a.count:
		x.Out.NullArray()
		return nil
	case l.Len() == 0:
		x.Out.Array(0)
		return nil
	}
	return a.move(x, l)
}

func blmovem(x *Call) (err error) {
	var a moveArgs
	if a.listMove, err = parseMove(x.Args[3], x.Args[4]); err != nil {
		return err
	}
	if err := a.parseCount(x.Args[6:]); err != nil {
		return err
	}
	timeoutMs, err := x.timeoutSeconds(x.Args[5])
	if err != nil {
		return err
	}
	_, l, err := findFilled(x, x.Args[1:2], findList)
	switch {
	case err != nil:
		return err
	case l == nil, a.exactly && int64(l.Len()) < a.count:
		x.blockOrNull(timeoutMs)
		return nil
	}
	return a.move(x, l)
}

// leastMoved returns how many elements a call of BLMOVEM waits for.
func leastMoved(args [][]byte) int64 {
	var a moveArgs
	if a.parseCount(args[6:]) != nil || !a.exactly {
		return 1
	}
	return a.count
}

// move moves elements of the list l, which has enough, and replies with them.
func (a *moveArgs) move(x *Call, l *keyspace.List) error {
	source, destination := x.Args[1], x.Args[2]
	if _, err := findList(x, destination); err != nil {
		return err
	}
	n := int(min(a.count, int64(l.Len())))
	if x.Spend(n * (kept + listMoved)); x.overworked() {
		return ErrCommandWork
	}
	first, last := a.from.span(l, n)
	low, high := min(first, last), max(first, last)
	var values [][]byte
	l.Range(low, high, func(value string) bool {
		x.spendBytes(2 * len(value)) // copied out and in
		values = append(values, []byte(value))
		return !x.overworked()
	})
	if x.overworked() {
		return ErrCommandWork
	}
	if a.turned {
		slices.Reverse(values)
	}
	x.Out.Array(n) // first: a refused reply must move nothing
	for _, value := range values {
		x.Out.Bulk(value)
	}
	src, from := editList(x, source)
	from.RemoveRange(low, high)
	dst, to := editList(x, destination)
	if a.to == leftEnd { // PushFront puts each before the one before it
		slices.Reverse(values)
	}
	a.to.push(to, values...)
	x.changed(dst, NotifyList, a.to.pushed())
	x.changed(src, NotifyList, a.from.popped())
	return nil
}

// listMoved is the cost of copying an element out of a list and into another.
const listMoved = 16
