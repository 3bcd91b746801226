package fsm

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// slowWriter takes some time for each Write.
type slowWriter struct{ takes time.Duration }

func (w slowWriter) Write(b []byte) (int, error) {
	time.Sleep(w.takes)
	return len(b), nil
}

// A snapshot leaves half of the time to others, but does not rest long after a slow disk.
func TestSnapshotsRest(t *testing.T) {
	for _, c := range []struct{ takes, want time.Duration }{ // of two writes
		{workBeforeRest / 2, 2 * workBeforeRest},
		{workBeforeRest, 4 * workBeforeRest},
		{time.Second, 2 * (time.Second + longestRest)},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, begin := &restingWriter{slowWriter{c.takes}, rests{time.Now()}}, time.Now()
			for i := range 3 {
				for range 2 {
					if _, err := io.WriteString(w, "x"); err != nil {
						t.Fatal(err)
					}
				}
				if took, want := time.Since(begin), time.Duration(i+1)*c.want; took != want {
					t.Errorf("%d writes of %v: %v, want %v", 2*(i+1), c.takes, took, want)
				}
			}
		})
	}
}
