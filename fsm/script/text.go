package script

import (
	"strings"

	"github.com/coordd/coordd/fsm/script/lua"
)

// text builds a string of unknown length. A growing buffer would leave copies of itself behind, so
// a text consists of pieces that are joined once. It charges for memory before allocating it; write
// charges for the work as well.
type text struct {
	L      *lua.LState
	pieces []string
	chunk  strings.Builder // short texts are copied into it; it never grows
	room   int             // capacity of the chunk
	joined int             // bytes of the chunk that are already pieces
	size   int
}

const (
	firstChunk  = 64
	chunkRatio  = 4 // growth from one chunk to the next
	lastChunk   = 64 << 10
	longPiece   = 256 // a string this long becomes a piece without being copied
	chunkBytes  = 32  // bytes of a chunk, or of what is joined, that one unit pays for
	firstPieces = 8   // initial capacity of the list
)

// add appends s, which is retained until done.
func (t *text) add(s string) {
	t.size += len(s)
	if len(s) >= longPiece {
		t.cut()
		t.piece(s)
		return
	}
	for len(s) > t.room-t.chunk.Len() {
		n := t.room - t.chunk.Len()
		t.chunk.WriteString(s[:n])
		s = s[n:]
		t.grow()
	}
	t.chunk.WriteString(s)
}

// write charges for the work and appends s.
func (t *text) write(s string) {
	chargeWork(t.L, len(s))
	t.add(s)
}

// addByte appends one byte.
func (t *text) addByte(c byte) {
	if t.chunk.Len() == t.room {
		t.grow()
	}
	t.size++
	t.chunk.WriteByte(c)
}

// addBytes appends a few bytes, which are copied.
func (t *text) addBytes(b []byte) {
	t.size += len(b)
	for len(b) > t.room-t.chunk.Len() {
		n := t.room - t.chunk.Len()
		t.chunk.Write(b[:n])
		b = b[n:]
		t.grow()
	}
	t.chunk.Write(b)
}

// grow starts the next chunk.
func (t *text) grow() {
	t.cut()
	t.room = min(max(t.room*chunkRatio, firstChunk), lastChunk)
	t.joined = 0
	budgetOf(t.L).Charge(t.L, int64(t.room)/chunkBytes)
	budgetOf(t.L).ChargeBytes(t.L, int64(t.room))
	t.chunk = strings.Builder{}
	t.chunk.Grow(t.room)
}

// cut makes a piece of what the chunk received since the last cut.
func (t *text) cut() {
	if t.chunk.Len() > t.joined {
		t.piece(t.chunk.String()[t.joined:])
		t.joined = t.chunk.Len()
	}
}

func (t *text) piece(s string) {
	if len(t.pieces) == cap(t.pieces) {
		room := max(2*cap(t.pieces), firstPieces)
		budgetOf(t.L).ChargeBytes(t.L, int64(room)*slotOverhead)
		t.pieces = append(make([]string, 0, room), t.pieces...)
	}
	t.pieces = append(t.pieces, s)
}

// done returns the text.
func (t *text) done() string {
	if len(t.pieces) == 0 {
		return t.chunk.String()
	}
	t.cut()
	if len(t.pieces) > 1 {
		budgetOf(t.L).Charge(t.L, int64(t.size)/chunkBytes)
		budgetOf(t.L).ChargeBytes(t.L, int64(t.size))
	}
	return strings.Join(t.pieces, "")
}
