// Commands that work on the ends of lists: pushing, popping, moving, and the forms of these that
// wait.

package commands

// push is the handler of LPUSH and RPUSH, and, when the list has to exist, of LPUSHX and RPUSHX.
func push(end listEnd, existing bool) Handler {
	return func(x *Call) error {
		l, err := findList(x, x.Args[1])
		if err != nil {
			return err
		}
		if existing && l.Len() == 0 {
			x.Out.Int(0)
			return nil
		}
		e, l := editList(x, x.Args[1])
		for _, value := range x.Args[2:] {
			end.push(l, value)
		}
		x.changed(e, NotifyList, end.pushed())
		x.Out.Int(int64(l.Len()))
		return nil
	}
}

// pop is the handler of LPOP and RPOP.
func pop(end listEnd) Handler {
	return func(x *Call) error {
		if len(x.Args) > 3 {
			return x.Spec.ArityError()
		}
		count, counted, err := x.popCount()
		if err != nil {
			return err
		}
		l, err := findList(x, x.Args[1])
		switch {
		case err != nil:
			return err
		case l.Len() == 0 && counted:
			x.Out.NullArray()
		case l.Len() == 0:
			x.Out.Null()
		case count == 0:
			x.Out.Array(0)
		case counted:
			takeEnd(x, x.Args[1], l, end, count)
		default:
			position, _ := end.span(l, 1)
			x.Out.BulkString(l.At(position))
			cutEnd(x, x.Args[1], end, 1)
		}
		return nil
	}
}

// bpop is the handler of BLPOP and BRPOP.
func bpop(end listEnd) Handler {
	return func(x *Call) error {
		last := len(x.Args) - 1
		timeoutMs, err := x.timeoutSeconds(x.Args[last])
		if err != nil {
			return err
		}
		key, l, err := findFilled(x, x.Args[1:last], findList)
		if err != nil {
			return err
		}
		if l == nil {
			x.blockOrNull(timeoutMs)
			return nil
		}
		position, _ := end.span(l, 1)
		x.Out.Array(2)
		x.Out.Bulk(key)
		x.Out.BulkString(l.At(position))
		cutEnd(x, key, end, 1)
		return nil
	}
}

// lmultipop takes elements from an end of the first list that is there.
func lmultipop(x *Call, p *multipop) (found bool, err error) {
	key, l, err := findFilled(x, p.keys, findList)
	if err != nil || l == nil {
		return false, err
	}
	end := leftEnd
	if p.second {
		end = rightEnd
	}
	x.Out.Array(2)
	x.Out.Bulk(key)
	takeEnd(x, key, l, end, p.count)
	return true, nil
}

// listMove moves an element from an end of one list to an end of another.
type listMove struct{ from, to listEnd }

// parseMove reads the words for the two ends.
func parseMove(from, to []byte) (m listMove, err error) {
	if m.from, err = parseEnd(from); err != nil {
		return m, err
	}
	m.to, err = parseEnd(to)
	return m, err
}

// run moves an element from the list at the first key to the list at the second and replies with
// it. moved is false where there is no list to take from.
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
	x.Out.BulkString(value) // first: what cannot be answered is not moved
	// Both changes come before either notification: the two may be one list, which then must not be
	// gone in between.
	src, from := editList(x, source)
	from.RemoveRange(position, position)
	dst, to := editList(x, destination)
	m.to.push(to, []byte(value))
	x.changed(dst, NotifyList, m.to.pushed())
	x.changed(src, NotifyList, m.from.popped())
	return true, nil
}

// runOrNull is run that replies null where there is nothing to move.
func (m listMove) runOrNull(x *Call) error {
	moved, err := m.run(x)
	if err == nil && !moved {
		x.Out.Null()
	}
	return err
}

// runOrBlock is run that waits where there is nothing to move.
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
