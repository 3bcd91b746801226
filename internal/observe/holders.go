package observe

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/coordd/coordd/internal/resp"
)

// ErrChanged means that an action on a lock did not run: somebody else has taken the lock since it
// was shown, or it is gone.
var ErrChanged = errors.New("nothing was done: the lock was released or has another holder now")

// channels are where Redisson's clients wait for the release of a lock of a kind; the key follows
// in braces.
var channels = map[string]string{KindReentrant: "redisson_lock__channel:",
	KindReadWrite: "redisson_rwlock:"}

// Release deletes a lock, if its fencing token is still the one that was shown, and wakes those who
// wait for one of Redisson's kinds.
func (c *Client) Release(ctx context.Context, db int, key, kind, token string) error {
	commands := [][]string{{"DEL", key}}
	if channel := channels[kind]; channel != "" {
		commands = append(commands, []string{"PUBLISH", channel + "{" + key + "}", "0"})
	}
	return c.ifHeld(ctx, db, key, token, commands...)
}

// Extend gives a lock some milliseconds from now, under the same condition.
func (c *Client) Extend(ctx context.Context, db int, key, token string, ms int64) error {
	return c.ifHeld(ctx, db, key, token, []string{"PEXPIRE", key, strconv.FormatInt(ms, 10)})
}

// ifHeld runs commands in one transaction, if the fencing token of a key is as given. The
// transaction fails if the key has changed after the token was read.
func (c *Client) ifHeld(ctx context.Context, db int, key, token string,
	commands ...[]string) (err error) {
	cn, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer cn.Close()
	read := [][]string{{"WATCH", key}, {"FENCE", key}}
	if db != 0 {
		read = append([][]string{{"SELECT", strconv.Itoa(db)}}, read...)
	}
	replies, err := cn.all(ctx, read)
	if err != nil {
		return err
	}
	if replies[len(replies)-1].Text != token {
		return ErrChanged
	}
	change := [][]string{{"MULTI"}}
	change = append(append(change, commands...), []string{"EXEC"})
	replies, err = cn.all(ctx, change)
	if err != nil {
		return err
	}
	ran := replies[len(replies)-1]
	if ran.Null || ran.Kind == resp.Null {
		return ErrChanged
	}
	for _, v := range ran.Elems {
		if err := replyError(v); err != nil {
			return err
		}
	}
	return nil
}

// all sends commands on one connection. The first reply that is an error is the error.
func (cn *conn) all(ctx context.Context, commands [][]string) ([]resp.Value, error) {
	replies, sent, err := cn.ask(ctx, commands)
	switch {
	case err == nil:
	case sent:
		return nil, fmt.Errorf("%w (%v)", ErrLost, err)
	default:
		return nil, err
	}
	for _, v := range replies {
		if err := replyError(v); err != nil {
			return nil, err
		}
	}
	return replies, nil
}
