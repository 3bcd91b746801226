package sample

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Fill writes keys of several types, whose names start with prefix: a held lock, a key that expires
// at once, a counter that a script increments too, a hash and a sorted set.
func Fill(t testing.TB, c *redis.Client, prefix string) {
	t.Helper()
	for _, cmd := range [][]any{
		{"SET", prefix + ":lock", "me", "NX", "PX", "600000"},
		{"SET", prefix + ":gone", "x", "PX", "1"},
		{"INCRBY", prefix + ":count", 41},
		{"HSET", prefix + ":hash", "b", 1, "a", 2},
		{"ZADD", prefix + ":zset", 1.5, "x", 2, "y"},
		{"EVAL", "return redis.call('incr', KEYS[1])", 1, prefix + ":count"},
	} {
		err := c.Do(context.Background(), cmd...).Err()
		if err != nil && !errors.Is(err, redis.Nil) { // nil: the lock is held
			t.Fatal(cmd, err)
		}
	}
}
