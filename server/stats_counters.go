// The counters that INFO shows.

package server

import (
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
)

// errorCodes are the code words of coordd's own errors.
var errorCodes = words("BUSYGROUP BUSYKEY CLUSTERDOWN DENIED ERR EXECABORT IDONTKNOW INVALIDOBJ " +
	"LOADING MOVED NOAUTH NOGROUP NOLEASE NOPERM NOPROTO NOQUORUM NOSCRIPT NOTBUSY OOM " +
	"REDIRECT TRYAGAIN UNBLOCKED UNKNOWN WRONGPASS WRONGTYPE")

func words(text string) map[string]bool {
	all := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		all[word] = true
	}
	return all
}

// maxErrorWord bounds the code word of an error, bytes: scripts can invent any.
const maxErrorWord = 64

// maxErrorKinds bounds the words that are counted separately besides: scripts can invent any.
const maxErrorKinds = 128

type stats struct {
	connections, commands atomic.Uint64
	rejected, protected   atomic.Uint64 // clients, by maxclients and protected mode
	bytesIn, bytesOut     atomic.Uint64
	reads, writes         atomic.Uint64
	errorReplies          atomic.Uint64
	unrecognized          atomic.Uint64 // commands that are not in the table
	unauthenticatedClosed atomic.Uint64 // clients, for lack of time or room
	rateDelayed           atomic.Uint64 // requests of clients above their rates
	rateDelayedClients    atomic.Int64  // that wait now
	// writes answered by a dry run; dry runs that stopped before a write
	dryRunHits, dryRunMisses atomic.Uint64
	byCommand                map[*commands.Spec]*commandStats // the map itself never changes
	backupAt, backupBytes    atomic.Int64                     // the last backup that was sent whole

	mu     lockorder.Mutex
	errors map[string]uint64 // by first word
	others uint64            // errors whose word is not in errorCodes

	rateAt                        time.Time // start of the interval for rates
	rateCommands, rateIn, rateOut uint64
	rates                         [3]float64
}

// error counts error replies.
func (t *stats) error(code codeWord, n int) {
	if n == 0 {
		return
	}
	word := string(code)
	t.errorReplies.Add(uint64(n))
	t.mu.Lock()
	defer t.mu.Unlock()
	if !errorCodes[word] {
		t.others += uint64(n)
	}
	if t.errors[word] > 0 || errorCodes[word] || len(t.errors) < maxErrorKinds {
		t.errors[word] += uint64(n)
	}
}

// codeWord is the code word of an error reply. It shares nothing with the reply: sessions, counters
// and the audit trail keep the word, and replies can be large.
type codeWord string

// codeOf returns the code word of an error reply without its '-'.
func codeOf[S string | []byte](reply S) codeWord {
	word := string(reply[:min(len(reply), maxErrorWord)])
	if end := strings.IndexAny(word, " \r\n"); end >= 0 {
		word = word[:end]
	}
	return codeWord(strings.Clone(word))
}

// errorCounts returns a copy of the counts by first word, and the number of those whose word is not
// in errorCodes.
func (t *stats) errorCounts() (words map[string]uint64, others uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.errors), t.others
}

// rate returns commands, input bytes and output bytes per second, since the last call at least a
// second ago.
func (t *stats) rate(now time.Time) (ops, in, sent float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seconds := now.Sub(t.rateAt).Seconds(); seconds >= 1 {
		c, i, out := t.commands.Load(), t.bytesIn.Load(), t.bytesOut.Load()
		t.rates = [3]float64{float64(c-t.rateCommands) / seconds, float64(i-t.rateIn) / seconds,
			float64(out-min(out, t.rateOut)) / seconds}
		t.rateAt, t.rateCommands, t.rateIn, t.rateOut = now, c, i, out
	}
	return t.rates[0], t.rates[1], t.rates[2]
}

// reset is CONFIG RESETSTAT.
func (t *stats) reset() {
	for _, c := range []*atomic.Uint64{&t.connections, &t.rejected, &t.protected, &t.commands,
		&t.bytesIn, &t.bytesOut, &t.reads, &t.writes, &t.errorReplies, &t.unrecognized,
		&t.unauthenticatedClosed, &t.rateDelayed, &t.dryRunHits, &t.dryRunMisses} {
		c.Store(0)
	}
	for _, c := range t.byCommand {
		c.calls.Store(0)
		c.rejected.Store(0)
		c.failed.Store(0)
		c.notRun.Store(0)
		c.unknown.Store(0)
		c.took.Store(0)
		c.times.Reset()
		c.scripts.calls.Store(0)
		c.scripts.rejected.Store(0)
		c.scripts.failed.Store(0)
		c.scripts.work.Store(0)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.errors)
	t.others = 0
	t.rateAt, t.rateCommands, t.rateIn, t.rateOut = time.Now(), 0, 0, 0
	t.rates = [3]float64{}
}

func (s *session) countError(code codeWord) {
	s.failure = code
	s.srv.stats.error(code, 1)
}
