package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/logging"
)

// Stderr is the Config.File that stands for the standard error stream.
const Stderr = "stderr"

// fileMode is that of the file: addresses and names of users are private.
const fileMode = 0o600

// neverMegabytes is a size that no file reaches. lumberjack counts in bytes, and takes 0 for 100
// MiB.
const neverMegabytes = math.MaxInt32

// Bounds of a line.
const (
	maxArgs = 16  // arguments of an event
	maxText = 128 // bytes of one of its strings
)

// fileWait bounds how long Reopen and Close wait for a file that takes no more.
const fileWait = 2 * time.Second

// errBusy says that the writer has not come to a request.
var errBusy = errors.New("the audit log is busy: it is opened again when it takes more")

// Config says where the trail goes.
type Config struct {
	File string // or Stderr; empty: none
	// Syslog is where the trail goes besides: SyslogLocal, or unix:///PATH, udp://HOST:PORT or
	// tcp://HOST:PORT; empty: nowhere.
	Syslog string
	Node   string // named in each line
	// MaxMegabytes is the size at which the file is renamed and a new one begun. 0: it grows until
	// somebody else renames it and calls Reopen.
	MaxMegabytes int
	Keep         int // renamed files to keep; 0: all
	Logger       *slog.Logger
}

// OK is the outcome of a command that succeeded.
const OK = "ok"

// Event is one line of the trail.
type Event struct {
	Time    time.Time `json:"time"`
	Node    string    `json:"node"`
	Event   string    `json:"event"`          // the command's full name, or "denied"
	Args    []string  `json:"args,omitempty"` // never values or secrets
	Outcome string    `json:"outcome"`        // OK, or the code word of the error
	// For a denial: Redis's words in ACL LOG.
	Reason  string `json:"reason,omitempty"`
	Context string `json:"context,omitempty"`
	Object  string `json:"object,omitempty"`

	User       string `json:"user"` // empty: the client is a stranger
	Address    string `json:"address"`
	TLSSubject string `json:"tls_subject,omitempty"`
	Client     uint64 `json:"client_id"`
	// Applied is the newest log entry that the node had applied when it answered a write.
	Applied uint64 `json:"applied_index,omitempty"`
	Count   int64  `json:"count,omitempty"` // how often, if more than once
	// Change: it changed something, or may have. Only of these each is a line.
	Change bool `json:"-"`
	Try    bool `json:"-"` // to be a user
}

// lost is the line that stands for dropped events.
type lost struct {
	Time  time.Time `json:"time"`
	Event string    `json:"event"` // "dropped"
	Count uint64    `json:"count"`
}

// Log is an open trail. nil is one that records nothing.
type Log struct {
	also     *Log      // to syslog, with a queue of its own; nil: none
	syslog   *syslog   // out; nil: it is another
	out      io.Writer // the writer's own
	node     string
	file     *lumberjack.Logger // the writer's own; nil: it writes to no file
	path     string             // as configured; empty: stderr
	warnings *logging.Limited
	wake     chan struct{} // a token: there is something to write
	done     chan struct{} // closed when the writer has ended

	mu      lockorder.Mutex
	queues  [len(mostQueued)]queue // by class
	repeats repeats
	dropped uint64
	reopen  []chan error // those who asked for another file, each with room for the answer
	closed  bool

	torn     bool   // the newest line is incomplete; the writer's own
	reported uint64 // dropped events that the trail names; the writer's own
}

// Open opens the trail, or returns nil if none is configured.
func Open(c Config) (*Log, error) {
	also, err := openSyslog(c)
	if err != nil || c.File == "" {
		return also, err
	}
	l := newLog(os.Stderr, c)
	l.also = also
	if c.File != Stderr {
		l.path = c.File
		name, err := prepare(c.File)
		if err != nil {
			return nil, err
		}
		size := c.MaxMegabytes
		if size == 0 || size > neverMegabytes {
			size = neverMegabytes
		}
		l.file = &lumberjack.Logger{Filename: name, MaxSize: size, MaxBackups: c.Keep}
		l.out = l.file
	}
	go l.write()
	return l, nil
}

// openSyslog opens the trail to syslog, or returns nil. Whether anybody is there is seen later.
func openSyslog(c Config) (*Log, error) {
	if c.Syslog == "" {
		return nil, nil
	}
	s, err := newSyslog(c.Syslog, logging.NewLimited(c.Logger))
	if err != nil {
		return nil, err
	}
	l := newLog(s, c)
	l.syslog = s
	go l.write()
	return l, nil
}

func newLog(out io.Writer, c Config) *Log {
	l := &Log{out: out, node: c.Node, warnings: logging.NewLimited(c.Logger),
		wake: make(chan struct{}, 1), done: make(chan struct{})}
	for i, most := range mostQueued {
		l.queues[i].most = most
	}
	return l
}

// prepare creates the file, or makes an existing one private, and returns its name without links:
// rotation renames the file, not a link to it.
func prepare(path string) (string, error) {
	fail := func(err error) (string, error) {
		var inner *os.PathError
		if errors.As(err, &inner) {
			err = inner.Err
		}
		return "", fmt.Errorf("cannot open the audit log %s: %w", path, err)
	}
	// opening a pipe would wait for its reader
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fail(errors.New("not a regular file"))
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, fileMode)
	if err != nil {
		return fail(err)
	}
	if err := errors.Join(f.Chmod(fileMode), f.Close()); err != nil {
		return fail(err)
	}
	name, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fail(err)
	}
	return name, nil
}

// Record adds an event, whose time and node it sets. It never waits.
func (l *Log) Record(e Event) {
	if l == nil {
		return
	}
	l.also.Record(e)
	e.Time, e.Node = time.Now().UTC(), l.node
	e.shorten()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		l.dropped++
		return
	}
	of := e.shares()
	q := &l.queues[of[0].class()]
	line, dropped := l.repeats.admit(&e, of, q)
	if line {
		dropped = q.add(e, of[0])
	}
	if dropped {
		l.dropped++
	}
	l.rouse()
}

// rouse makes the writer look.
func (l *Log) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// shorten bounds what the event holds.
func (e *Event) shorten() {
	args := e.Args
	e.Args = nil
	for i, a := range args {
		if i == maxArgs {
			e.Args = append(e.Args, "…")
			break
		}
		e.Args = append(e.Args, short(a))
	}
	for _, text := range []*string{&e.Outcome, &e.Object, &e.User, &e.TLSSubject} {
		*text = short(*text)
	}
}

func short(text string) string {
	if len(text) > maxText {
		return text[:maxText] + "…"
	}
	return text
}

// Dropped returns how many events are not in the trail.
func (l *Log) Dropped() uint64 {
	if l == nil {
		return 0
	}
	also := l.also.Dropped()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped + also
}

// Reopen makes the next event go to a new file if somebody has renamed the current one, or made its
// link lead elsewhere. The new file exists at once, even if nothing happens, and from then on
// nothing is written to the old one: who sees the new one can pack the old one.
func (l *Log) Reopen() error {
	if l == nil || l.path == "" {
		return nil
	}
	answer := make(chan error, 1)
	l.mu.Lock()
	l.reopen = append(l.reopen, answer)
	l.rouse()
	l.mu.Unlock()
	limit := time.NewTimer(fileWait)
	defer limit.Stop()
	select {
	case err := <-answer:
		return err
	case <-limit.C:
		return errBusy
	case <-l.done: // nothing is written to either
		return nil
	}
}

// Close writes what is queued, unless that takes long. Later events are dropped.
func (l *Log) Close() {
	if l == nil {
		return
	}
	var also sync.WaitGroup
	also.Go(l.also.Close)
	l.mu.Lock()
	l.closed = true
	l.rouse()
	l.mu.Unlock()
	limit := time.NewTimer(fileWait)
	defer limit.Stop()
	select {
	case <-l.done:
	case <-limit.C:
		l.syslog.stop()
	}
	also.Wait()
}

// write is the writer goroutine.
func (l *Log) write() {
	defer close(l.done)
	tick := time.NewTicker(period)
	defer tick.Stop()
	told := false // the trail names dropped events of this period
	for {
		ends := false
		select {
		case <-l.wake:
		case <-tick.C:
			ends = true
		}
		l.mu.Lock()
		events := l.takeQueued()
		dropped, reopen, closed := l.dropped, l.reopen, l.closed
		l.reopen = nil
		if ends || closed {
			events = append(events, l.repeats.flush()...)
		}
		l.mu.Unlock()
		if len(reopen) > 0 {
			err := l.openAgain()
			for _, answer := range reopen {
				answer <- err
			}
		}
		for i := range events {
			if !l.line(events[i]) {
				l.mu.Lock()
				l.dropped++
				l.mu.Unlock()
			}
		}
		// one line in a period, or dropping would fill the file
		if told = told && !ends && !closed; !told && dropped > l.reported &&
			l.line(lost{time.Now().UTC(), "dropped", dropped - l.reported}) {
			told = true
			l.warnings.Warn("the audit trail lacks events", "count", dropped-l.reported,
				"to_syslog", l.syslog != nil)
			l.reported = dropped
		}
		if closed {
			if l.file != nil {
				_ = l.file.Close()
			}
			l.syslog.hangUp()
			return
		}
	}
}

// takeQueued empties the queues and returns what was there, the oldest first.
func (l *Log) takeQueued() (events []Event) {
	for i := range l.queues {
		for _, q := range l.queues[i].drain() {
			events = append(events, q.Event)
		}
	}
	slices.SortStableFunc(events, byTime)
	return events
}

// openAgain goes on with what the path leads to now. It is the writer that creates the file,
// between two events: none that comes after the file goes to the one before.
func (l *Log) openAgain() error {
	name, err := prepare(l.path)
	if err != nil {
		return err
	}
	_ = l.file.Close() // the next write opens it
	if name != l.file.Filename {
		l.file = &lumberjack.Logger{Filename: name, MaxSize: l.file.MaxSize,
			MaxBackups: l.file.MaxBackups}
		l.out = l.file
	}
	return nil
}

// line writes one line and reports whether it could.
func (l *Log) line(v any) bool {
	var b bytes.Buffer
	if l.torn {
		b.WriteByte('\n')
	}
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	if err == nil {
		var n int
		n, err = l.out.Write(b.Bytes())
		l.torn = err != nil && (n > 0 || l.torn)
	}
	if err != nil {
		l.warnings.Warn("cannot write the audit log", "error", err)
	}
	return err == nil
}
