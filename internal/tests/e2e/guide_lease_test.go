// A proxy that makes the programs of the guide lose the reply to their first try for a lock.

package e2e

import (
	"io"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// lostReplies plays, before each SET NX PX of a program, an earlier try of the same owner whose
// reply was lost, with a tenth of the lease. A program that recognises its own lock has to renew
// it: at its next request after that, and at its end, the lock has most of the whole lease.
//
// Of a LOCK.ACQUIRE with an id it plays the same call: the program's own is its repeat.
//
// A short lease might end in between, and EX sets marks, such as those of jobs, that nobody holds.
type lostReplies struct {
	t      *testing.T
	direct *redis.Client
	mu     sync.Mutex
	owed   map[string]*lostLease // by key
	played int
	// acquired counts the tries of LOCK.ACQUIRE
	acquired int
}

type lostLease struct {
	token string
	lease time.Duration
	asked int // requests of the program for the key since it has seen its own token
}

const longLease = 10 * time.Second

// requests forwards requests to the node.
func (l *lostReplies) requests(to io.Writer, b []byte) {
	for _, request := range parseRequests(b) {
		l.before(request)
	}
	_, _ = to.Write(b)
}

// before acts before a request of a program reaches the node.
func (l *lostReplies) before(request []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, owed := range l.owed {
		if len(request) < 2 || request[1] != key {
			continue
		}
		if owed.asked++; owed.asked > 1 { // the first may be the renewal
			l.check(key, owed)
		}
	}
	if strings.EqualFold(request[0], "LOCK.ACQUIRE") {
		l.acquire(request)
		return
	}
	if len(request) < 5 || !strings.EqualFold(request[0], "SET") {
		return
	}
	only, px := false, 0
	for i, word := range request[3:] {
		switch strings.ToUpper(word) {
		case "NX":
			only = true
		case "PX":
			px, _ = strconv.Atoi(request[3+i+1])
		}
	}
	key, token, lease := request[1], request[2], time.Duration(px)*time.Millisecond
	if !only || lease < longLease {
		return
	}
	if l.direct.SetNX(l.t.Context(), key, token, lease/10).Val() {
		l.owed[key] = &lostLease{token: token, lease: lease}
		l.played++
	}
}

// acquire plays an earlier try of a LOCK.ACQUIRE with an id. If it waits, both do, in one place.
func (l *lostReplies) acquire(request []string) {
	words := make([]any, len(request))
	hasID := false
	for i, word := range request {
		words[i] = word
		hasID = hasID || strings.EqualFold(word, "ID")
	}
	if !hasID {
		return
	}
	l.acquired++
	tried := make(chan struct{})
	go func() {
		defer close(tried)
		_ = l.direct.Do(l.t.Context(), words...).Err()
	}()
	select {
	case <-tried:
	case <-time.After(50 * time.Millisecond):
	}
}

// check fails the test if the owner of a lock that lost a reply still has it and has not renewed.
func (l *lostReplies) check(key string, owed *lostLease) {
	delete(l.owed, key)
	ctx := l.t.Context()
	if l.direct.Get(ctx, key).Val() != owed.token {
		return
	}
	if left := l.direct.PTTL(ctx, key).Val(); left < owed.lease/2 {
		l.t.Errorf("%s is held for %v of %v after a lost reply: not renewed", key, left, owed.lease)
	}
}

// end checks what is left when a program has ended.
func (l *lostReplies) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, owed := range l.owed {
		l.check(key, owed)
	}
}

// parseRequests returns the requests that b holds whole. No word of a recipe has a CRLF.
func parseRequests(b []byte) (requests [][]string) {
	lines := strings.Split(string(b), "\r\n")
	for len(lines) > 0 && strings.HasPrefix(lines[0], "*") {
		n, err := strconv.Atoi(lines[0][1:])
		if err != nil || len(lines) < 1+2*n {
			return requests
		}
		request := make([]string, n)
		for i := range request {
			request[i] = lines[2+2*i]
		}
		requests, lines = append(requests, request), lines[1+2*n:]
	}
	return requests
}
