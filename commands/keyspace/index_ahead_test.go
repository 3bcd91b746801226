package keyspace

import (
	"strconv"
	"testing"
)

// Load reads the places of keys that are there and of keys that are not, in pages of every kind.
func TestUpcomingKeys(t *testing.T) {
	for name, hash := range map[string]func(key string) uint64{
		"pages":        hashOf,
		"equal hashes": func(key string) uint64 { return hashOf(key) >> 60 },
	} {
		t.Run(name, func(t *testing.T) {
			m := newIndexModel(t, hash)
			ks := New()
			ks.dbs[3].keys = m.x
			var u Upcoming
			for i := range worthLoading {
				if ks.OutgrewCaches() {
					t.Fatalf("%d keys outgrew the caches", i)
				}
				m.set(strconv.Itoa(i))
				u.Add(ks.DB(3), []byte(strconv.Itoa(2*i)))
				if u.Full() {
					u.Load()
					if u.n != 0 || u.read == 0 {
						t.Fatalf("%d keys are left, the sum is %d", u.n, u.read)
					}
				}
			}
			if !ks.OutgrewCaches() {
				t.Error("the index did not outgrow the caches")
			}
			m.holds(m.x, m.content())
		})
	}
}
