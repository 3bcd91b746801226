// Deadlines of a hash's fields: see element_ttl.go.

package keyspace

// dead reports whether a field has expired.
func (h *Hash) dead(f field) bool { return h.passed(f.deadline) }

// Deadline returns when a field expires, ms of the cluster clock, 0 for never, and whether it
// exists.
func (h *Hash) Deadline(name []byte) (atMs int64, exists bool) {
	f, ok := h.get(name)
	return f.deadline, ok
}

// SetDeadline sets when an existing field expires, ms of the clock of ks, to which the hash
// belongs; 0 for never.
func (h *Hash) SetDeadline(ks *Keyspace, name []byte, atMs int64) {
	f, position, ok := h.lookup(name)
	if !ok || f.deadline == atMs {
		return
	}
	h.sum ^= fieldSum(f)
	h.bytes -= fieldSize(f)
	h.forget(f.deadline, f.name)
	f.deadline = atMs
	h.sum ^= fieldSum(f)
	h.bytes += fieldSize(f)
	h.ttls = h.plan(ks, atMs, f.name)
	h.put(f, position, true)
}

func (h *Hash) bury(name string) {
	f, position, _ := h.lookup([]byte(name))
	h.remove(f, position)
}

func (h *Hash) dropTTLs() { h.ttls = nil }

// Pick returns a function that returns existing fields by position, 0 to Len-1, in the order of
// Each. It is valid until the hash changes. It does work proportional to the number of fields only
// if some have expired.
func (h *Hash) Pick() func(i int) (name string, value []byte) {
	if h.Dead() == 0 && h.large != nil {
		return func(i int) (string, []byte) {
			f, _ := h.large.GetAt(i)
			return f.name, f.value
		}
	}
	alive := h.small
	if h.Dead() > 0 {
		alive = nil
		h.all(func(f field) bool {
			if !h.dead(f) {
				alive = append(alive, f)
			}
			return true
		})
	}
	return func(i int) (string, []byte) { return alive[i].name, alive[i].value }
}
