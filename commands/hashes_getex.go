// HGETEX and HGETDEL, which return fields of a hash and change or delete them.

package commands

func hgetdelCommand(x *Call) error {
	h, names, err := x.hashFields()
	if err != nil {
		return err
	}
	x.expectFields(h, names)
	edit := x.hashEdit(h)
	x.Out.Array(len(names))
	for _, name := range names {
		replyField(x, edit.c, name)
		if _, exists := edit.c.Get(name); exists {
			edit.remove(name)
		}
	}
	edit.finish("hdel")
	return nil
}

func hgetexCommand(x *Call) error {
	h, err := findHash(x, x.Args[1])
	if err != nil {
		return err
	}
	rest := x.Args[2:]
	unit, persist := parseTTLUnit(rest[0]), isWord(rest[0], "PERSIST")
	var deadlineMs int64
	switch {
	case unit != ttlNone:
		if deadlineMs, err = x.parseElementDeadline(unit, rest[1]); err != nil {
			return err
		}
		rest = rest[2:]
	case persist:
		rest = rest[1:]
	}
	names, err := parseFields(rest, errFieldsCount)
	if err != nil {
		return err
	}
	x.expectFields(h, names)
	edit := x.hashEdit(h)
	event := "hdel" // if no field stays
	x.Out.Array(len(names))
	for _, name := range names {
		replyField(x, edit.c, name)
		oldMs, exists := edit.c.Deadline(name)
		if !exists || (unit == ttlNone && (!persist || oldMs == 0)) {
			continue
		}
		if !edit.expire(name, deadlineMs) {
			event = "hexpire"
		}
	}
	if persist {
		event = "hpersist"
	}
	edit.finish(event)
	return nil
}
