package main

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestGoodBackupBesideAnother: a backup that is good is never said to have failed, also where an
// older one is of another cluster and nothing may be removed.
func TestGoodBackupBesideAnother(t *testing.T) {
	dir := t.TempDir()
	old, young := newPatient(t, "n1"), newPatient(t, "n1")
	for _, p := range []*patient{old, young} {
		p.open = true
		serving(t, nil, p)
	}
	client := redis.NewClient(&redis.Options{Addr: old.addr})
	defer client.Close()
	for range 20 { // so that its log is longer
		if err := client.Incr(t.Context(), "n").Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		p     *patient
		code  int
		words string
	}{{old, 0, "backup of "}, {young, 1, "no old one was removed"}} {
		code, said := says(t, "backup", "--from", test.p.addr, "--to", dir, "--keep", "1")
		if code != test.code || !strings.Contains(said, "backup of "+test.p.addr) ||
			!strings.Contains(said, test.words) || strings.Contains(said, "failed") {
			t.Errorf("exit %d: %s", code, said)
		}
	}
}
