package pulse

import (
	"testing"
	"time"
)

// Periods that divide each other meet, whenever and however late their loops go on.
func TestInstantsAreShared(t *testing.T) {
	const short, long = 50 * time.Millisecond, 200 * time.Millisecond
	start := time.Unix(1_800_000_000, 123_456_789)
	for late := range 300 {
		now := start.Add(time.Duration(late) * 997 * time.Microsecond)
		for _, every := range []time.Duration{short, long} {
			wait := until(now, every)
			if wait < every/4 || wait > every+every/4 {
				t.Fatalf("%v from %v: %v", every, now, wait)
			}
			if at := now.Add(wait); at.UnixNano()%int64(short) != 0 {
				t.Errorf("%v from %v: at %v", every, now, at)
			}
		}
	}
	early := time.Unix(0, int64(long)-1000)
	if got := until(early, long); got != long+1000 {
		t.Errorf("1 µs before an instant: %v", got)
	}
}
