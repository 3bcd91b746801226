// Copies keys in pieces: large ones, and those that one command cannot read.

package migrate

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// tempTTL is the TTL of temporary keys, renewed with each piece: what a killed import leaves
// expires.
const tempTTL = time.Hour

// Attempts at a key that changes while it is read, or whose pieces may or may not have been
// written.
const maxAttempts = 3

var (
	errVanished = errors.New("the key no longer exists")
	errChanged  = errors.New("the key changes while it is read")
	errLost     = errors.New(
		"the temporary key is gone: the copy took more than an hour, or something deletes keys")
)

// temp is a key under construction in the target, with a temporary name.
type temp struct {
	r      *run
	name   string
	begun  bool
	mortal bool // elements have TTLs: all may have expired, and the key with them
}

// copyLarge copies one key. An error ends the import.
func (r *run) copyLarge(ctx context.Context, it *item) error {
	for attempt := 1; ; attempt++ {
		err := r.copyOnce(ctx, it)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errVanished):
			r.report.Vanished++
			return nil
		case ctx.Err() != nil:
			return err
		case notNow(err), !isReply(err) && !errors.Is(err, errChanged) && !errors.Is(err, errLost):
			return err // other keys would fail, too
		case attempt == maxAttempts, !errors.Is(err, errChanged) && !unknown(err) &&
			word(replyOf(err)) != "WRONGTYPE":
			r.fail(r.db, it.key, err.Error())
			return nil
		}
		items, err := r.describe(ctx, []string{it.key})
		if err != nil || len(items) == 0 { // describe counted it
			return err
		}
		it = items[0]
		if _, known := types[it.kind]; !known {
			r.fail(r.db, it.key, "coordd has no type \""+it.kind+"\"")
			return nil
		}
	}
}

func (r *run) copyOnce(ctx context.Context, it *item) error {
	if !r.cfg.Replace {
		n, err := r.to.Exists(ctx, it.key).Result()
		if err != nil && !notNow(err) {
			return r.targetError(err)
		}
		if n == 1 {
			r.report.Present++
			return nil
		}
	}
	r.names++
	t := &temp{r: r, name: r.prefix + strconv.Itoa(r.names)}
	err := r.pieces(ctx, it, t)
	if err == nil {
		err = r.unchanged(ctx, it)
	}
	if err == nil {
		err = t.appear(ctx, it)
	}
	if err != nil && t.begun {
		_ = r.to.Del(context.WithoutCancel(ctx), t.name).Err() // otherwise it expires
	}
	return err
}

// unchanged checks that a key that was read in pieces still exists with the same type.
func (r *run) unchanged(ctx context.Context, it *item) error {
	kind, err := r.from.Type(ctx, it.key).Result()
	switch {
	case err != nil:
		return r.sourceError(err)
	case kind == "none":
		return errVanished
	case kind != it.kind:
		return errChanged
	}
	return nil
}

// stillLong returns errChanged unless the source counts as many bytes or elements as were read in
// sequence.
func (r *run) stillLong(ctx context.Context, command, key string, read int64) error {
	n, err := r.ask(ctx, command, key).Int64()
	if err != nil {
		return r.sourceError(err)
	}
	if n != read {
		return errChanged // or vanished, which the next attempt notices
	}
	return nil
}

// pieces reads a key piece by piece and puts each piece into t.
func (r *run) pieces(ctx context.Context, it *item, t *temp) error {
	switch {
	case it.kind == "string":
		return r.stringPieces(ctx, it, t)
	case it.kind == "stream":
		return r.streamPieces(ctx, it, t)
	}
	n, err := r.ask(ctx, types[it.kind].length, it.key).Int64()
	if err != nil {
		return r.sourceError(err)
	}
	if n == 0 {
		return errVanished
	}
	count := int64(pieceElements / 8) // if the source does not report sizes
	if it.usage > 0 {
		count = min(max(pieceBytes/max(it.usage/n, 1), 1), pieceElements)
	}
	if types[it.kind].scan == "" {
		return r.listPieces(ctx, it, t, count)
	}
	return r.scanPieces(ctx, it, t, count)
}

func (r *run) ask(ctx context.Context, words ...any) *redis.Cmd { return r.from.Do(ctx, words...) }

// askList sends a command whose reply is a list.
func (r *run) askList(ctx context.Context, words ...any) ([]any, error) {
	list, err := r.ask(ctx, words...).Slice()
	if err != nil {
		return nil, r.sourceError(err)
	}
	return list, nil
}

func (r *run) stringPieces(ctx context.Context, it *item, t *temp) error {
	for at := 0; ; {
		piece, err := r.ask(ctx, "GETRANGE", it.key, at, at+pieceBytes-1).Text()
		if err != nil {
			return r.sourceError(err)
		}
		if piece == "" && at == 0 {
			return r.emptyString(ctx, it, t)
		}
		if piece != "" {
			if err := t.put(ctx, []any{"APPEND", theKey, piece}); err != nil {
				return err
			}
		}
		if at += len(piece); len(piece) < pieceBytes {
			return r.stillLong(ctx, "STRLEN", it.key, int64(at))
		}
	}
}

// emptyString copies an empty string, which GETRANGE does not distinguish from a missing key.
func (r *run) emptyString(ctx context.Context, it *item, t *temp) error {
	n, err := r.from.Exists(ctx, it.key).Result()
	if err != nil {
		return r.sourceError(err)
	}
	if n == 0 {
		return errVanished
	}
	return t.put(ctx, []any{"SET", theKey, ""})
}

func (r *run) listPieces(ctx context.Context, it *item, t *temp, count int64) error {
	for at := int64(0); ; {
		list, err := r.askList(ctx, "LRANGE", it.key, at, at+count-1)
		if err != nil {
			return err
		}
		if len(list) == 0 && at == 0 {
			return errVanished
		}
		if len(list) == 0 {
			return r.stillLong(ctx, "LLEN", it.key, at)
		}
		at += int64(len(list))
		if err := t.put(ctx, types[it.kind].load(list)...); err != nil {
			return err
		}
	}
}

// scanPieces copies what a cursor reads. Elements returned twice are written twice, which is
// harmless.
func (r *run) scanPieces(ctx context.Context, it *item, t *temp, count int64) error {
	for cursor := "0"; ; {
		answer, err := r.askList(ctx, types[it.kind].scan, it.key, cursor, "COUNT", count)
		if err != nil {
			return err
		}
		cursor, _ = answer[0].(string)
		list, _ := answer[1].([]any)
		var lives [][]any
		if len(list) > 0 && r.mortal[it.kind] {
			if list, lives, err = r.elementTTLs(ctx, it, list); err != nil {
				return err
			}
		}
		if len(list) > 0 {
			t.mortal = t.mortal || len(lives) > 0
			if err := t.put(ctx, append(types[it.kind].load(list), lives...)...); err != nil {
				return err
			}
		}
		if cursor == "0" {
			return t.some()
		}
	}
}

// mortals are the kinds whose elements may have TTLs: how these are read and set, and after how
// many words of what a scan returns the next element begins.
var mortals = map[string]struct {
	ask, set, word string
	step           int
}{"hash": {"HPTTL", "HPEXPIRE", "FIELDS", 2}, "set": {"SPTTL", "SPEXPIRE", "MEMBERS", 1}}

// elementTTLs returns what of a list of elements still exists, and the commands that set their
// TTLs.
func (r *run) elementTTLs(ctx context.Context, it *item, list []any) (rest []any, cmds [][]any,
	err error) {
	m := mortals[it.kind]
	ask := []any{m.ask, it.key, m.word, len(list) / m.step}
	for i := 0; i < len(list); i += m.step {
		ask = append(ask, list[i])
	}
	ttls, err := r.askList(ctx, ask...)
	if err != nil {
		return nil, nil, err
	}
	for i, ttl := range ttls {
		const missing = -2
		ms, _ := ttl.(int64)
		if ms == missing { // since the scan
			continue
		}
		element := list[m.step*i:][:m.step]
		rest = append(rest, element...)
		if ms >= 0 {
			cmds = append(cmds, []any{m.set, theKey, ms, m.word, 1, element[0]})
		}
	}
	return rest, cmds, nil
}

// put writes a piece.
func (t *temp) put(ctx context.Context, cmds ...[]any) error {
	_, err := t.putAll(ctx, cmds...)
	return err
}

// putAll is put, and returns the replies.
func (t *temp) putAll(ctx context.Context, cmds ...[]any) ([]any, error) {
	all := [][]any{{"PEXPIRE", t.name, tempTTL.Milliseconds()}}
	for _, c := range cmds {
		all = append(all, named(c, t.name))
	}
	if !t.begun {
		t.begun = true
		return t.r.exec(ctx, append(all[1:], all[0])...)
	}
	replies, err := t.r.exec(ctx, all...)
	switch {
	case err != nil || replies[0] == int64(1):
	case t.mortal:
		err = errChanged
	default:
		err = t.r.targetError(errLost)
	}
	return replies, err
}

// some returns errVanished if no piece was put.
func (t *temp) some() error {
	if !t.begun {
		return errVanished
	}
	return nil
}

// appear gives the key its TTL and its name.
func (t *temp) appear(ctx context.Context, it *item) error {
	ms, ok := it.leftMs()
	if !ok {
		return errors.Join(errVanished, t.r.to.Del(ctx, t.name).Err())
	}
	life := []any{"PERSIST", t.name}
	if ms > 0 {
		life = []any{"PEXPIRE", t.name, ms}
	}
	replies, err := t.r.exec(ctx, life, []any{t.r.rename(), t.name, it.key}, []any{"DEL", t.name})
	switch {
	case err != nil && t.mortal && replyOf(err).Error() == "ERR no such key":
		return errChanged // or vanished, which the next attempt notices
	case err != nil:
		return err
	case replies[1] == int64(0):
		t.r.report.Present++
	default:
		t.r.report.Copied[it.kind]++
	}
	return nil
}

// exec runs a transaction in the target. It retries while it is certain that the target did not run
// it.
func (r *run) exec(ctx context.Context, cmds ...[]any) ([]any, error) {
	for start := time.Now(); ; {
		pipe := r.to.TxPipeline()
		for _, c := range cmds {
			pipe.Do(ctx, c...)
		}
		done, err := pipe.Exec(ctx)
		if err == nil {
			replies := make([]any, len(done))
			for i, d := range done {
				replies[i] = d.(*redis.Cmd).Val()
			}
			return replies, nil
		}
		if !notNow(err) || time.Since(start) > patience {
			return nil, r.targetError(err)
		}
		if err := rest(ctx); err != nil {
			return nil, err
		}
	}
}
