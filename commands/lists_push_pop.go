// The PUSH and POP families of lists, with the forms that block.

package commands

// push is the handler of LPUSH and RPUSH and, for existing lists only, of LPUSHX and RPUSHX.
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
		end.push(l, x.Args[2:]...)
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

// lmultipop pops elements from an end of the first list that exists.
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
