package keyspace

import (
	"fmt"
	"testing"
)

// A key's estimate grows with its content, and the one by samples is near the full one if elements
// are alike.
func TestMemory(t *testing.T) {
	ks := New()
	ks.Begin(1, NewRevision(0, 1, 0))
	db := ks.DB(0)
	short, long := db.SetString([]byte("a"), []byte("x")).Memory(5),
		db.SetString([]byte("a"), make([]byte, 1000)).Memory(5)
	if short < 100 || short > 300 || long-short < 990 || long-short > 1010 {
		t.Errorf("strings: %d and %d", short, long)
	}
	hash, zset, set, list, stream := NewHash(), NewZSet(), NewSet(), NewList(), NewStream()
	db.SetCollection([]byte("hash"), hash)
	db.SetCollection([]byte("zset"), zset)
	db.SetCollection([]byte("set"), set)
	db.SetCollection([]byte("list"), list)
	db.SetCollection([]byte("stream"), stream)
	keys := []string{"hash", "zset", "set", "list", "stream"}
	last := map[string]int{}
	for size := 10; size <= 1000; size *= 10 {
		for i := range size {
			name := fmt.Appendf(nil, "element-%05d", i)
			hash.Set(name, name)
			zset.Add(name, float64(i))
			set.Add(name)
		}
		for i := list.Len(); i < size; i++ {
			list.PushBack(fmt.Appendf(nil, "element-%05d", i))
			stream.Add(StreamID{Ms: uint64(i + 1)},
				[][]byte{[]byte("field"), fmt.Appendf(nil, "element-%05d", i)})
		}
		for _, key := range keys {
			e := db.Find([]byte(key))
			all, some := e.Memory(0), e.Memory(5)
			if all < size*30 || all > size*250+500 || all <= last[key] || some < all*9/10 ||
				some > all*11/10 {
				t.Errorf("%s of %d: %d bytes, by samples %d, before %d", key, size, all, some,
					last[key])
			}
			last[key] = all
		}
	}
	ks.End()
}
