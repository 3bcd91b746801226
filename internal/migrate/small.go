// Copies small keys, one transaction each, many per round trip.

package migrate

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// readSmall reads the values of small keys and sets their load. It omits keys that vanished, and
// returns those whose type changed as changed.
func (r *run) readSmall(ctx context.Context, items []*item) (ready, changed []*item, err error) {
	if len(items) == 0 {
		return nil, nil, nil
	}
	pipe := r.from.Pipeline()
	answers := make([]*redis.Cmd, len(items))
	for i, it := range items {
		answers[i] = pipe.Do(ctx, types[it.kind].whole(it.key)...)
	}
	if _, err := pipe.Exec(ctx); err != nil && !isReply(err) {
		return nil, nil, r.sourceError(err)
	}
	for i, it := range items {
		v, err := answers[i].Result()
		list, _ := v.([]any)
		switch {
		case errors.Is(err, redis.Nil), err == nil && list == nil && it.kind != "string",
			list != nil && len(list) == 0:
			r.report.Vanished++
		case err != nil && word(err) == "WRONGTYPE":
			changed = append(changed, it)
		case err != nil:
			r.fail(r.db, it.key, "the source does not return it: "+err.Error())
		case it.kind == "string":
			it.load = [][]any{{"SET", theKey, v}}
			ready = append(ready, it)
		default:
			it.load = types[it.kind].load(list)
			ready = append(ready, it)
		}
	}
	return ready, changed, nil
}

// writeSmall writes keys in one round trip. It retries those that the target cannot take now, and
// those that it may or may not have taken: writing a whole key twice is harmless.
func (r *run) writeSmall(ctx context.Context, items []*item) error {
	for start := time.Now(); len(items) > 0; {
		left, reason, err := r.writeOnce(ctx, items)
		if err != nil {
			return err
		}
		if items = left; len(items) == 0 {
			return nil
		}
		if time.Since(start) > patience {
			return r.targetError(reason)
		}
		if err := rest(ctx); err != nil {
			return err
		}
	}
	return nil
}

func rest(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(100 * time.Millisecond):
		return nil
	}
}

// writeOnce writes keys. It returns those that the target did not take, and the reason.
func (r *run) writeOnce(ctx context.Context, items []*item) (left []*item, reason, err error) {
	pipe := r.to.Pipeline()
	sent := make([]*redis.Cmd, len(items))
	for i, it := range items {
		ms, ok := it.leftMs()
		switch {
		case !ok:
			r.report.Vanished++
		case it.kind == "string":
			sent[i] = pipe.Do(ctx, r.set(it, ms)...)
		default:
			sent[i] = r.transaction(ctx, pipe, it, ms)
		}
	}
	if pipe.Len() == 0 {
		return nil, nil, nil
	}
	if _, err := pipe.Exec(ctx); err != nil && !isReply(err) {
		return nil, nil, r.targetError(err)
	}
	for i, it := range items {
		if sent[i] == nil {
			continue
		}
		v, err := sent[i].Result()
		if notNow(err) || unknown(err) {
			left, reason = append(left, it), err
			continue
		}
		r.countOutcome(it, v, err)
	}
	return left, reason, nil
}

// set returns the command that writes a string.
func (r *run) set(it *item, leftMs int64) []any {
	cmd := named(it.load[0], it.key)
	if leftMs > 0 {
		cmd = append(cmd, "PX", leftMs)
	}
	if !r.cfg.Replace {
		cmd = append(cmd, "NX")
	}
	return cmd
}

// transaction queues the commands that build a key under a temporary name and rename it, and
// returns the EXEC.
func (r *run) transaction(ctx context.Context, pipe redis.Pipeliner, it *item,
	leftMs int64) *redis.Cmd {
	temp := r.prefix + "small"
	pipe.Do(ctx, "MULTI")
	pipe.Do(ctx, "DEL", temp)
	for _, cmd := range it.load {
		pipe.Do(ctx, named(cmd, temp)...)
	}
	if leftMs > 0 {
		pipe.Do(ctx, "PEXPIRE", temp, leftMs)
	}
	pipe.Do(ctx, r.rename(), temp, it.key)
	pipe.Do(ctx, "DEL", temp)
	return pipe.Do(ctx, "EXEC")
}

// rename returns the command that gives a key its final name.
func (r *run) rename() string {
	if r.cfg.Replace {
		return "RENAME"
	}
	return "RENAMENX"
}

// countOutcome counts the outcome for a small key: v is the reply to SET or EXEC.
func (r *run) countOutcome(it *item, v any, err error) {
	replies, _ := v.([]any)
	for _, e := range replies {
		if e, ok := e.(error); ok && err == nil {
			err = e
		}
	}
	switch {
	case errors.Is(err, redis.Nil): // SET NX
		r.report.Present++
	case err != nil:
		r.fail(r.db, it.key, "the target refused it: "+err.Error())
	case len(replies) >= 2 && replies[len(replies)-2] == int64(0):
		r.report.Present++
	default:
		r.report.Copied[it.kind]++
	}
}
