package elector

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lock is a lock for leaderelection.LeaderElectionConfig.
type Lock struct {
	// Event is called with what client-go records; nil: nobody wants it.
	Event func(string)

	client  *redis.Client
	key, id string

	mu     sync.Mutex
	token  int64     // 0: the lock is not held, as far as is known
	lostAt time.Time // when the lock was found lost
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns the lock of a candidate. Its id is new for each start of a process: host, pid and
// something random.
func New(opt *redis.Options, key, id string) *Lock {
	own := *opt
	// client-go says how long a call may take. One that took longer would keep the leader from
	// noticing that its time is over.
	own.ContextTimeoutEnabled = true
	return &Lock{client: redis.NewClient(&own), key: key, id: id}
}

// Close closes the connections.
func (l *Lock) Close() error { return l.client.Close() }

// Token returns the fencing token of the candidate, 0 if it does not lead. Who begins to lead reads
// it once, and sends it with each write.
func (l *Lock) Token() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Get implements resourcelock.Interface. Whatever the record says, its holder is that of the lock.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	var owner, text *redis.StringCmd
	_, err := l.client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		owner, text = tx.Get(ctx, l.key), tx.Get(ctx, l.recordKey())
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, redis.Nil):
		return nil, nil, err
	case owner.Val() == "" && text.Val() == "":
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "locks"}, l.key)
	}
	var record resourcelock.LeaderElectionRecord
	if text.Val() != "" {
		if err := json.Unmarshal([]byte(text.Val()), &record); err != nil {
			return nil, nil, err
		}
	}
	record.HolderIdentity = owner.Val() // "": whoever comes may have it at once
	raw, err := json.Marshal(record)
	return &record, raw, err
}

// Create implements resourcelock.Interface.
func (l *Lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, r)
}

// Update implements resourcelock.Interface: it takes or extends the lock, or releases it if the
// record has no holder.
func (l *Lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.HolderIdentity == "" {
		err = l.release(ctx)
	} else {
		err = l.hold(ctx, time.Duration(r.LeaseDurationSeconds)*time.Second)
	}
	if err != nil {
		return err
	}
	return l.client.Set(ctx, l.recordKey(), text, 0).Err()
}

// hold takes the lock, or extends it. The caller holds l.mu.
func (l *Lock) hold(ctx context.Context, ttl time.Duration) error {
	if time.Since(l.lostAt) < ttl {
		return fmt.Errorf("%s was lost", l.key) // to lead on, with a gap, would go unnoticed
	}
	took, err := l.call(ctx, l.token, ttl)
	if took == 0 && l.token == 0 && err == nil {
		took, err = l.extend(ctx, ttl) // it was ours: the reply to an earlier call was lost
	}
	if err != nil {
		return err
	}
	if took == 0 && l.token != 0 {
		l.lostAt = time.Now()
	}
	if l.token = took; took == 0 {
		return fmt.Errorf("%s is held by another", l.key)
	}
	return nil
}

// call extends the lock of a token, or takes it if there is none.
func (l *Lock) call(ctx context.Context, token int64, ttl time.Duration) (int64, error) {
	if token != 0 {
		return l.extend(ctx, ttl, "TOKEN", token)
	}
	return l.tokenOf(ctx, "LOCK.ACQUIRE", l.key, l.id, "PX", ttl.Milliseconds(),
		"ID", rand.Text())
}

func (l *Lock) extend(ctx context.Context, ttl time.Duration, more ...any) (int64, error) {
	return l.tokenOf(ctx, append([]any{"LOCK.EXTEND", l.key, l.id, "PX", ttl.Milliseconds()},
		more...)...)
}

// tokenOf returns the token that a call replies.
func (l *Lock) tokenOf(ctx context.Context, call ...any) (int64, error) {
	grant, err := l.client.Do(ctx, call...).Int64Slice()
	if err != nil {
		return 0, err
	}
	return grant[0], nil
}

func (l *Lock) release(ctx context.Context) error {
	if l.token == 0 {
		return nil
	}
	err := l.client.Do(ctx, "LOCK.RELEASE", l.key, l.id, "TOKEN", l.token).Err()
	if err == nil {
		l.token = 0
	}
	return err
}

func (l *Lock) recordKey() string { return l.key + ":record" }

// RecordEvent implements resourcelock.Interface.
func (l *Lock) RecordEvent(text string) {
	if l.Event != nil {
		l.Event(text)
	}
}

// Identity implements resourcelock.Interface.
func (l *Lock) Identity() string { return l.id }

// Describe implements resourcelock.Interface.
func (l *Lock) Describe() string { return "coordd/" + l.key }
