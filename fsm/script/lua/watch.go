package lua

// Watch marks what functions can reach through their upvalues, so that changes of it set
// Global.Touched. It returns false if they reach something whose changes cannot be recorded: a
// coroutine, or a Go function that keeps something between calls.
func (L *LState) Watch(functions []*LFunction) bool {
	w := watcher{seen: map[*LFunction]bool{}}
	for _, f := range functions {
		w.add(f)
	}
	for len(w.next) > 0 {
		v := w.next[len(w.next)-1]
		w.next = w.next[:len(w.next)-1]
		switch v := v.(type) {
		case *LFunction:
			w.function(v)
		case *LTable:
			w.table(v)
		case *LState:
			return false
		}
	}
	return !w.opaque
}

// watcher walks over what is reachable.
type watcher struct {
	next   []LValue
	seen   map[*LFunction]bool
	opaque bool
}

// add queues a value to visit.
func (w *watcher) add(v LValue) {
	switch v := v.(type) {
	case *LFunction:
		if w.seen[v] {
			return
		}
		w.seen[v] = true
	case *LTable:
		if v.marks != 0 {
			return
		}
		v.marks |= watched
	case *LState:
	default:
		return
	}
	w.next = append(w.next, v)
}

func (w *watcher) function(f *LFunction) {
	if f.IsG {
		w.opaque = w.opaque || !f.Lasts
		return
	}
	for _, uv := range f.Upvalues {
		uv.watched = true
		w.add(*uv.v)
	}
}

func (w *watcher) table(t *LTable) {
	if t.Metatable != nil {
		w.add(t.Metatable)
	}
	for _, v := range t.array {
		w.add(v)
	}
	for _, e := range t.entries {
		w.add(e.key)
		w.add(e.value)
	}
}
