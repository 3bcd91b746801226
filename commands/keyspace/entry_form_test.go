package keyspace

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Strings of all lengths around that at which the form of an entry changes, with short and long
// keys, are what a plain map holds; their key, deadline and creation stay. What a packed
// entry returned before a change is what it was.
func TestFormsHoldWhatWasSet(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	ks := New()
	db := ks.DB(0)
	model := map[string][]byte{}
	key := func() []byte {
		return []byte(strings.Repeat("k", []int{0, 1, maxPacked, maxPacked + 1}[r.IntN(4)]))
	}
	text := func() []byte {
		return bytes.Repeat([]byte{'a' + byte(r.IntN(26))}, r.IntN(maxPacked+30))
	}
	var seen, copies [][]byte
	forms := map[form]int{}
	for index := uint64(1); index < 20_000; index++ {
		ks.Begin(1, NewRevision(0, index, 0))
		key := key()
		had := db.Find(key)
		old := model[string(key)]
		var created Revision
		if had != nil {
			created = had.Created()
			if had.form == packed {
				seen, copies = append(seen, had.Bytes()), append(copies, bytes.Clone(had.Bytes()))
			}
		}
		var e *Entry
		value := text()
		switch r.IntN(6) {
		case 0:
			e = db.SetString(key, value)
		case 1:
			value = value[:min(len(value), 20)]
			e = db.AppendString(key, value)
			value = append(slices.Clip(old), value...)
		case 2:
			offset, part := r.IntN(maxPacked+10), value[:min(len(value), 10)]
			e = db.WriteAt(key, offset, part)
			value = make([]byte, max(len(old), offset+len(part)))
			copy(value, old)
			copy(value[offset:], part)
		case 3:
			if had == nil {
				e = db.Create(key, value)
				break
			}
			e, value = db.Edit(key), old
			db.SetDeadline(e, 1+r.Int64N(9))
		case 4:
			if r.IntN(4) > 0 {
				ks.Freeze()
				continue
			}
			db.Delete(key)
			delete(model, string(key))
			continue
		case 5:
			e = db.SetCollection(key, NewStream())
			db.Changed(e)
			e = db.SetString(key, value)
		}
		forms[e.form]++
		model[string(key)] = value
		if f := db.Find(key); f != e || e.Key() != string(key) || !bytes.Equal(e.Bytes(), value) ||
			e.Kind() != KindString || had != nil && e.Created() != created {
			t.Fatalf("%q is %q, want %q", e.Key(), e.Bytes(), value)
		}
		if packs := len(key) <= maxPacked && len(value) <= maxPacked; e.form == packed && !packs {
			t.Fatalf("a key of %d bytes and a string of %d are packed", len(key), len(value))
		}
		sizeIsRight(t, ks)
		ks.End()
	}
	for i := range seen {
		if !bytes.Equal(seen[i], copies[i]) {
			t.Fatalf("%q became %q", copies[i], seen[i])
		}
	}
	if forms[packed] < 100 || forms[texted] < 100 {
		t.Fatalf("forms: %v", forms)
	}
}
