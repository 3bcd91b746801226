package main

// The reentrant lock in Redisson's shape: a hash that counts its owner's
// entries, and a channel on which an unlock wakes who waits.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const reentrantLease = 30 * time.Second

// rlock is one owner's view of a reentrant lock, on one node.
type rlock struct {
	e                    *env
	c                    *redis.Client
	lock, channel, owner string
}

func (e *env) rlock(i int, lock string) *rlock {
	return &rlock{e: e, c: e.node(i), lock: lock, channel: lock + ":freed", owner: token() + ":1"}
}

// enter tries once; when refused it tells how long the holder's lease still is.
func (l *rlock) enter(ctx context.Context) (bool, time.Duration, error) {
	leftMs, isNil, err := l.e.runInt(ctx, l.c, "reentrant_lock", []string{l.lock},
		reentrantLease.Milliseconds(), l.owner)
	return isNil, time.Duration(leftMs) * time.Millisecond, err
}

// leave sends one unlock under a request name: 1 freed, 0 still held, nil not
// the owner's.
func (l *rlock) leave(ctx context.Context, request string) (int64, bool, error) {
	latch := l.e.key("latch:" + request)
	return l.e.runInt(ctx, l.c, "reentrant_unlock", []string{l.lock, l.channel, latch},
		0, reentrantLease.Milliseconds(), l.owner, "PUBLISH", 5000)
}

// enterWaiting subscribes, tries, and tries again at each wake-up. It never
// polls: if a wake-up is lost it waits for as long as the lease, and so fails.
func (l *rlock) enterWaiting(ctx context.Context, refused func()) error {
	if got, _, err := l.enter(ctx); err != nil || got {
		return err
	}
	sub := l.c.Subscribe(ctx, l.channel)
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil { // the acknowledgement
		return err
	}
	messages := sub.Channel()
	for {
		got, left, err := l.enter(ctx)
		if err != nil || got {
			return err
		}
		if refused != nil {
			refused()
		}
		leaseOver := time.NewTimer(left)
		select {
		case <-messages:
		case <-leaseOver.C:
		case <-ctx.Done():
			return errors.New("a waiter was not woken")
		}
		leaseOver.Stop()
	}
}

// reentrantLock: entering twice needs leaving twice; nobody else gets in or can
// leave for the owner; a waiter on another node is woken; then six callers
// raise a counter under it, woken by nothing but messages.
func reentrantLock(ctx context.Context, e *env) error {
	lock := e.key("lock")
	mine, other := e.rlock(0, lock), e.rlock(1, lock)
	if err := entersTwice(ctx, mine, other); err != nil {
		return err
	}
	if err := wakesWaiter(ctx, mine, other); err != nil {
		return err
	}
	const callers, rounds = 6, 4
	counter := e.key("counter")
	err := together(callers, func(i int) error {
		l := e.rlock(i, lock)
		for range rounds {
			if err := l.enterWaiting(ctx, nil); err != nil {
				return err
			}
			raiseErr := raise(ctx, l.c, counter)
			n, isNil, err := l.leave(ctx, token())
			if err == nil && (isNil || n != 1) {
				err = fmt.Errorf("the owner's unlock answered %d, nil %t", n, isNil)
			}
			if err := errors.Join(raiseErr, err); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return e.wantCount(ctx, counter, callers*rounds)
}

// entersTwice leaves the lock held once, by mine.
func entersTwice(ctx context.Context, mine, other *rlock) error {
	for range 2 {
		if got, _, err := mine.enter(ctx); err != nil || !got {
			return fmt.Errorf("the owner did not get in: %t %v", got, err)
		}
	}
	got, left, err := other.enter(ctx)
	if err != nil || got || left <= 0 || left > reentrantLease {
		return fmt.Errorf("a second owner: entered %t, told to wait %v (%v)", got, left, err)
	}
	if n, isNil, err := other.leave(ctx, token()); err != nil || !isNil {
		return fmt.Errorf("a wrong owner's unlock answered %d (%v), want nil", n, err)
	}
	request := token()
	for range 2 { // the second is the same request again: it counts once
		if n, isNil, err := mine.leave(ctx, request); err != nil || isNil || n != 0 {
			return fmt.Errorf("the inner unlock answered %d, nil %t (%v), want 0", n, isNil, err)
		}
	}
	if n, err := other.c.HGet(ctx, mine.lock, mine.owner).Int64(); err != nil || n != 1 {
		return fmt.Errorf("the owner holds %d entries (%v), want 1", n, err)
	}
	return nil
}

// wakesWaiter frees the lock, which mine holds once, when the waiter on another
// node has been refused after it subscribed.
func wakesWaiter(ctx context.Context, mine, waiter *rlock) error {
	waiting, in := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		in <- waiter.enterWaiting(ctx, func() {
			select {
			case waiting <- struct{}{}:
			default:
			}
		})
	}()
	select {
	case <-waiting:
	case err := <-in:
		return fmt.Errorf("the waiter came in while the lock was held (%v)", err)
	}
	if n, isNil, err := mine.leave(ctx, token()); err != nil || isNil || n != 1 {
		return fmt.Errorf("the last unlock answered %d, nil %t (%v), want 1", n, isNil, err)
	}
	limit := time.NewTimer(5 * time.Second) // far less than the lease
	defer limit.Stop()
	select {
	case err := <-in:
		if err != nil {
			return err
		}
	case <-limit.C:
		return errors.New("the waiter on another node was not woken within 5 s of the unlock")
	}
	if n, isNil, err := waiter.leave(ctx, token()); err != nil || isNil || n != 1 {
		return fmt.Errorf("the woken owner's unlock answered %d, nil %t (%v), want 1", n, isNil,
			err)
	}
	return nil
}
