package lua

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// TestKeysHashedAgainArePaidFor changes tables with long keys at random. What hashes a key that is
// not the one that comes, because the index is made again or a key is lost, is charged for.
func TestKeysHashedAgainArePaidFor(t *testing.T) {
	long := strings.Repeat("a", 1<<16)
	var again, lost int
	for seed := range uint64(200) {
		g := rand.New(rand.NewPCG(seed, 1))
		L := NewState(Options{CallFrames: 10, Registers: 100, MaxRegisters: 1000})
		L.G.Strict = true
		tb := L.CreateTable(0, 0)
		for i := range 1 + g.IntN(40) {
			tb.RawSet(LString(long[i:]), LTrue)
		}
		keys, kinds := 1+g.IntN(60), 1+g.IntN(5)
		for step := range 300 {
			var key LValue
			value := LTrue
			switch i := (step / 2) % keys; g.IntN(kinds) {
			case 0: // of the same node
				key = LNumber(1024 + float64(i)*9765/1024)
			case 1:
				key = LString(fmt.Sprint("k", i))
			case 2:
				key = LNumber(i)
			case 3:
				key = LString(long[i:])
			default:
				key = LNumber(int64(1) << i)
			}
			if step%2 == 1 {
				value = LNil
			}
			index, before := indexOf(tb), longKeysOf(tb)
			L.G.Budget = Budget{Instructions: 1 << 40, Bytes: 1 << 40}
			if g.IntN(20) == 0 && tb.size < 64 {
				L.resizeArray(tb, int(tb.size)+1)
				key = LNil
			} else {
				L.rawSet(tb, key, value)
			}
			units := 1<<40 - L.G.Budget.Instructions - keyBytes(key)/bytesHashed
			if index == 0 {
				continue
			}
			made := index != indexOf(tb)
			after, bytes := longKeysOf(tb), 0
			for n := range before {
				if made == after[n] {
					bytes += n
				}
				if !made && !after[n] {
					lost++
				}
			}
			if made {
				again++
			}
			if units < int64(bytes)/bytesHashed {
				t.Fatalf("seed %d: %.20v = %v hashed %d bytes for %d units", seed, key, value,
					bytes, units)
			}
		}
	}
	if again < 100 || lost < 100 {
		t.Errorf("%d tables were indexed again, and %d long keys lost: too few", again, lost)
	}
}

// indexOf returns which index of strings a table has, 0 if none.
func indexOf(tb *LTable) uintptr { return reflect.ValueOf(tb.strings).Pointer() }

// longKeysOf returns the lengths of the long keys, with or without a value. No two have the same.
func longKeysOf(tb *LTable) map[int]bool {
	keys := map[int]bool{}
	for i := range tb.entries {
		if n := keyBytes(tb.entries[i].key); n > 1<<10 {
			keys[int(n)] = true
		}
	}
	return keys
}

// TestLookupsCostTheSame looks one long key up in each way: none is cheaper by more than a little.
func TestLookupsCostTheSame(t *testing.T) {
	key := LString(strings.Repeat("a", 1<<20))
	for name, look := range map[string]func(L *LState, tb *LTable){
		"get field": func(L *LState, tb *LTable) { L.GetField(tb, key) },
		"raw get":   func(L *LState, tb *LTable) { L.RawGet(tb, key) },
		"raw set":   func(L *LState, tb *LTable) { L.RawSet(tb, key, LTrue) },
		"next":      func(L *LState, tb *LTable) { L.Next(tb, key) },
	} {
		L := NewState(Options{CallFrames: 10, Registers: 100, MaxRegisters: 1000})
		L.G.Strict = true
		L.G.Budget = Budget{Instructions: 1 << 40, Bytes: 1 << 40}
		tb := L.CreateTable(0, 0)
		tb.RawSet(key, LTrue)
		look(L, tb)
		if units := 1<<40 - L.G.Budget.Instructions; units < 1<<20/bytesHashed {
			t.Errorf("%s: %d units", name, units)
		}
	}
}
