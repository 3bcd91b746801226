// What clients were told.

package crashpoints

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// slots is how many keys a ledger writes, over and over, so that snapshots stay small.
const slots = 40

// ledger writes numbered values and remembers which were acknowledged.
type ledger struct {
	prefix string
	tried  map[string]int // by key, the largest number
	acked  map[string]int
	sent   int // writes
	counts struct{ tried, acked int }
}

func newLedger(prefix string) *ledger {
	return &ledger{prefix: prefix, tried: map[string]int{}, acked: map[string]int{}}
}

func (l *ledger) clone() *ledger {
	c := *l
	c.tried, c.acked = maps.Clone(l.tried), maps.Clone(l.acked)
	return &c
}

// write writes one value, of up to a kilobyte, and counts.
func (l *ledger) write(c redis.Cmdable) error {
	ctx, done := context.WithTimeout(context.Background(), within)
	defer done()
	l.sent++
	i := l.sent
	key := l.prefix + strconv.Itoa(i%slots)
	l.tried[key] = i
	l.counts.tried++
	if err := c.Set(ctx, key, fmt.Sprint(i, " ", strings.Repeat(".", i*97%1000)), 0).Err(); err !=
		nil {
		return err
	}
	l.acked[key] = i
	if err := c.Incr(ctx, l.prefix+"count").Err(); err != nil {
		return err
	}
	l.counts.acked++
	return nil
}

// writes writes n values.
func (l *ledger) writes(c redis.Cmdable, n int) error {
	for range n {
		if err := l.write(c); err != nil {
			return err
		}
	}
	return nil
}

// check waits until a client can read, and returns what is missing or was not written.
func (l *ledger) check(c redis.Cmdable) error {
	if err := until(within, "reads", func() (bool, error) {
		return c.Exists(context.Background(), l.prefix+"count").Err() == nil, nil
	}); err != nil {
		return err
	}
	ctx, done := context.WithTimeout(context.Background(), within)
	defer done()
	for key, tried := range l.tried {
		text, err := c.Get(ctx, key).Result()
		if err != nil && err != redis.Nil {
			return fmt.Errorf("GET %s: %w", key, err)
		}
		got := 0
		if err == nil {
			word, _, _ := strings.Cut(text, " ")
			if got, err = strconv.Atoi(word); err != nil || text != fmt.Sprint(got, " ",
				strings.Repeat(".", got*97%1000)) {
				return fmt.Errorf("%s holds %q", key, text)
			}
		}
		if got < l.acked[key] || got > tried {
			return fmt.Errorf("%s holds value %d; %d was acknowledged, %d the last one sent", key,
				got, l.acked[key], tried)
		}
	}
	got, err := c.Get(ctx, l.prefix+"count").Int()
	if err != nil && err != redis.Nil {
		return err
	}
	if got < l.counts.acked || got > l.counts.tried {
		return fmt.Errorf("the counter is %d; %d increments were acknowledged, %d sent", got,
			l.counts.acked, l.counts.tried)
	}
	return nil
}

// serves waits until a write is acknowledged.
func (l *ledger) serves(n *node) error {
	var last error
	err := until(within, n.id+" acknowledges a write", func() (bool, error) {
		if n.ended() {
			return false, n.ending()
		}
		if last = l.write(n.client); last != nil {
			time.Sleep(20 * time.Millisecond)
		}
		return last == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("%w (%v)", err, last)
	}
	return err
}
