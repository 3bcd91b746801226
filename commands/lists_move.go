// LMOVE and RPOPLPUSH, and their blocking forms BLMOVE and BRPOPLPUSH.

package commands

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
