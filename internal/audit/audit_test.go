package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coordd/internal/tests/wait"
)

func open(t *testing.T, c Config) *Log {
	t.Helper()
	c.Node, c.Logger = "n1", slog.New(slog.DiscardHandler)
	l, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// events returns the names of the events in a trail, with what was dropped.
func events(t *testing.T, text string) (names []string) {
	t.Helper()
	for line := range strings.Lines(text) {
		var e struct {
			Event string
			Count int
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if e.Event == "dropped" {
			e.Event += fmt.Sprint(" ", e.Count)
		}
		names = append(names, e.Event)
	}
	return names
}

func TestTrail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	l := open(t, Config{File: path})
	l.Record(Event{Event: "acl|setuser", Args: []string{"a\nb", strings.Repeat("x", 200)},
		Outcome: OK, User: "<root>", Address: "127.0.0.1:1", Client: 7, Applied: 9})
	l.Close()
	l.Record(Event{Event: "late"})
	if l.Dropped() != 1 {
		t.Error("what comes after Close is not counted as dropped")
	}
	text := read(t, path)
	at := strings.Index(text, `"node"`)
	want := `"node":"n1","event":"acl|setuser","args":["a\nb","` + strings.Repeat("x", maxText) +
		`…"],"outcome":"ok","user":"<root>","address":"127.0.0.1:1","client_id":7,` +
		`"applied_index":9}` + "\n"
	if text[at:] != want {
		t.Errorf("%s\nwant %s", text[at:], want)
	}
	var e Event
	if err := json.Unmarshal([]byte(text), &e); err != nil || time.Since(e.Time) > time.Minute {
		t.Error(e.Time, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != fileMode {
		t.Error(info.Mode(), err)
	}
	var none *Log
	none.Record(Event{})
	none.Close()
	if none.Dropped() != 0 || none.Reopen() != nil {
		t.Error("a trail that is not configured")
	}
}

func TestRotation(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	l := open(t, Config{File: path, MaxMegabytes: 1, Keep: 2})
	arg := strings.Repeat("x", maxText)
	args := []string{arg, arg, arg, arg, arg, arg, arg, arg}
	all := func() []string {
		files, err := filepath.Glob(filepath.Join(dir, "audit*.log"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	wait.For(t, 20*time.Second, "three files", func() bool {
		l.mu.Lock()
		written := len(l.queues[users].events) == 0
		l.mu.Unlock()
		for i := 0; written && i < 100; i++ {
			l.Record(Event{Event: "acl|save", Args: args, Outcome: OK, User: strconv.Itoa(i),
				Change: true})
		}
		return len(all()) == 3 || l.Dropped() > 0
	})
	l.Close()
	if l.Dropped() > 0 {
		t.Error("dropped", l.Dropped())
	}
	for _, file := range all() {
		info, err := os.Stat(file)
		if err != nil || info.Mode() != fileMode || info.Size() > 1<<20 {
			t.Error(file, info, err)
		}
		events(t, read(t, file))
	}
}

// A size of more bytes than a number holds is not a small one.
func TestHugeSize(t *testing.T) {
	for _, size := range []int{0, math.MaxInt} {
		path := filepath.Join(t.TempDir(), "audit.log")
		l := open(t, Config{File: path, MaxMegabytes: size, Keep: 1})
		for range 3 {
			l.Record(Event{Event: "acl|save", Outcome: OK, Change: true})
		}
		l.Close()
		if n := len(events(t, read(t, path))); n != 3 || l.Dropped() > 0 {
			t.Errorf("%d MiB: %d events, %d dropped", size, n, l.Dropped())
		}
	}
}

// renamed returns a trail of one event in dir whose file has been renamed.
func renamed(t *testing.T, dir string) (l *Log, path, moved string) {
	t.Helper()
	path, moved = filepath.Join(dir, "audit"), filepath.Join(dir, "audit.1")
	l = open(t, Config{File: path})
	l.Record(Event{Event: "first", Outcome: OK, Change: true})
	wait.For(t, 5*time.Second, "the first event", func() bool { return read(t, path) != "" })
	if err := os.Rename(path, moved); err != nil {
		t.Fatal(err)
	}
	return l, path, moved
}

func TestReopen(t *testing.T) {
	l, path, moved := renamed(t, t.TempDir())
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, path); got != "" {
		t.Errorf("the new file has %s", got)
	}
	l.Record(Event{Event: "second", Outcome: OK, Change: true})
	l.Close()
	if got := events(t, read(t, moved)); fmt.Sprint(got) != "[first]" {
		t.Error(got)
	}
	if got := events(t, read(t, path)); fmt.Sprint(got) != "[second]" {
		t.Error(got)
	}
}

// Whoever sees the new file can pack the old one: nothing is written to that any more.
func TestNewFileEndsTheOld(t *testing.T) {
	for range 10 {
		// a long path makes opening slow
		dir := filepath.Join(t.TempDir(), strings.Repeat("d/", 300))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		l, path, moved := renamed(t, dir)
		reopened := make(chan error, 1)
		go func() { reopened <- l.Reopen() }()
		wait.For(t, 5*time.Second, "the new file", func() bool {
			_, err := os.Stat(path)
			return err == nil
		})
		l.Record(Event{Event: "later", Outcome: OK, Change: true})
		l.Close()
		if err := <-reopened; err != nil {
			t.Fatal(err)
		}
		if got := events(t, read(t, moved)); fmt.Sprint(got) != "[first]" {
			t.Fatal(got)
		}
		if got := events(t, read(t, path)); fmt.Sprint(got) != "[later]" {
			t.Fatal(got)
		}
	}
}

// A file that cannot be opened leaves the one that was open in use.
func TestReopenFails(t *testing.T) {
	l, path, moved := renamed(t, t.TempDir())
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
	l.Record(Event{Event: "second", Outcome: OK, Change: true})
	l.Close()
	if got := events(t, read(t, moved)); fmt.Sprint(got) != "[first second]" {
		t.Error(got)
	}
}

// A link that leads to another file is followed when the trail is opened again.
func TestReopenFollowsLink(t *testing.T) {
	dir := t.TempDir()
	path, first, second := filepath.Join(dir, "audit"), filepath.Join(dir, "a"),
		filepath.Join(dir, "b")
	if err := os.Symlink(first, path); err != nil {
		t.Fatal(err)
	}
	l := open(t, Config{File: path})
	l.Record(Event{Event: "first", Outcome: OK, Change: true})
	wait.For(t, 5*time.Second, "the first event", func() bool { return read(t, first) != "" })
	if err := errors.Join(os.Remove(path), os.Symlink(second, path), l.Reopen()); err != nil {
		t.Fatal(err)
	}
	l.Record(Event{Event: "second", Outcome: OK, Change: true})
	l.Close()
	if got := events(t, read(t, first)); fmt.Sprint(got) != "[first]" {
		t.Error(got)
	}
	if got := events(t, read(t, second)); fmt.Sprint(got) != "[second]" {
		t.Error(got)
	}
}

// slowWriter is a file that takes nothing until it is released, or fails.
type slowWriter struct {
	mu   sync.Mutex
	gate chan struct{}
	fail error
	got  bytes.Buffer
}

func (w *slowWriter) Write(b []byte) (int, error) {
	<-w.gate
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fail != nil {
		_, _ = w.got.Write(b[:5])
		return 5, w.fail
	}
	return w.got.Write(b)
}

func (w *slowWriter) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.got.String()
}

func TestBounds(t *testing.T) {
	w := &slowWriter{gate: make(chan struct{})}
	l := newLog(w, Config{Logger: slog.New(slog.DiscardHandler)})
	go l.write()
	for i := range 2*maxQueued + 2 {
		l.Record(Event{Event: "flushall", Outcome: OK, User: strconv.Itoa(i % 3), Change: true})
	}
	dropped := l.Dropped()
	if dropped < 1 || dropped > maxQueued+2 {
		t.Errorf("%d of %d events dropped", dropped, 2*maxQueued+2)
	}
	close(w.gate)
	wait.For(t, 5*time.Second, "room in the queue", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queues[users].events) == 0
	})
	for i := range maxQueued { // strangers leave room
		l.Record(Event{Event: "auth", Args: []string{strconv.Itoa(i)}, Outcome: "WRONGPASS"})
	}
	l.Record(Event{Event: "last", Outcome: OK, Change: true})
	wait.For(t, 5*time.Second, "the last event", func() bool {
		return strings.Contains(w.text(), `"last"`)
	})
	l.Close()
	written := map[string]int{}
	lost := 0
	for _, name := range events(t, w.text()) {
		var n int
		if _, err := fmt.Sscanf(name, "dropped %d", &n); err == nil {
			name, lost = "dropped", lost+n
		}
		written[name]++
	}
	if written["flushall"]+written["auth"]+lost != 3*maxQueued+2 || lost != int(l.Dropped()) ||
		written["auth"] == maxQueued {
		t.Errorf("%v and %d lost, of which %d are counted", written, lost, l.Dropped())
	}
}

// A line that a full disk cuts short does not spoil the next one.
func TestWriteFails(t *testing.T) {
	w := &slowWriter{gate: make(chan struct{}), fail: errors.New("no space left on device")}
	close(w.gate)
	l := newLog(w, Config{Logger: slog.New(slog.DiscardHandler)})
	go l.write()
	l.Record(Event{Event: "first", Outcome: OK, Change: true})
	wait.For(t, 5*time.Second, "a dropped event", func() bool { return l.Dropped() == 1 })
	w.mu.Lock()
	w.fail = nil
	w.mu.Unlock()
	l.Record(Event{Event: "second", Outcome: OK, Change: true})
	l.Close()
	lines := strings.SplitN(w.text(), "\n", 3)
	whole := events(t, strings.Join(lines[1:], "\n"))
	if fmt.Sprint(whole) != "[second dropped 1]" && fmt.Sprint(whole) != "[dropped 1 second]" {
		t.Errorf("%q", w.text())
	}
}

func TestPaths(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.WriteFile(at("file"), []byte("kept\n"), 0o600), os.Symlink("file", at("link")),
		os.Symlink("made", at("dangling")), syscall.Mkfifo(at("pipe"), 0o600),
		os.Mkdir(at("closed"), 0o500), os.Symlink("loop", at("loop")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for path, want := range map[string]string{
		dir: "not a regular file", "/dev/null": "not a regular file",
		at("pipe"): "not a regular file", at("none/audit"): "no such file or directory",
		at("file/audit"):   "not a directory",
		at("loop"):         "too many levels of symbolic links",
		at("closed/audit"): "permission denied",
		at("link"):         "", at("dangling"): "", "relative": "",
	} {
		if want == "permission denied" && os.Getuid() == 0 {
			continue // root may
		}
		l, err := Open(Config{File: path, Logger: slog.New(slog.DiscardHandler)})
		if want != "" {
			if err == nil || err.Error() != "cannot open the audit log "+path+": "+want {
				t.Errorf("%s: %v, want %s", path, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		l.Record(Event{Event: "written", Outcome: OK, Change: true})
		l.Close()
	}
	for name, want := range map[string]string{"file": "kept\n", "made": "", "relative": ""} {
		if got := read(t, at(name)); !strings.HasPrefix(got, want) ||
			!strings.Contains(got, `"written"`) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if info, err := os.Lstat(at("link")); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Error("the link was replaced")
	}
}

// trail is a trail in memory, in simulated time.
type trail struct {
	*Log
	w *slowWriter
}

func startTrail() trail {
	w := &slowWriter{gate: make(chan struct{})}
	close(w.gate)
	l := newLog(w, Config{Logger: slog.New(slog.DiscardHandler)})
	go l.write()
	return trail{l, w}
}

func (r trail) record(e Event) {
	r.Record(e)
	synctest.Wait()
}

// count ends the trail and returns how often it has each event, and the most repeats of one.
func (r trail) count(t *testing.T) (lines map[string]int, repeats int64) {
	t.Helper()
	r.Close()
	lines = map[string]int{}
	for line := range strings.Lines(r.w.text()) {
		var e Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		lines[e.Event]++
		repeats = max(repeats, e.Count)
	}
	return lines, repeats
}

// What repeats itself without changing anything is counted, from whichever port.
func TestRepeatsAreOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startTrail()
		app := Event{Event: "auth", Args: []string{"app"}, Outcome: OK, User: "app"}
		for port := range 5000 {
			app.Address = fmt.Sprintf("10.0.0.1:%d", 1000+port)
			r.record(app)
		}
		r.record(Event{Event: "flushdb", Outcome: OK, User: "app", Change: true})
		r.record(Event{Event: "flushdb", Outcome: OK, User: "app", Change: true})
		for range 2 {
			r.record(Event{Event: "acl|list", Outcome: "NOPERM", User: "app"})
		}
		time.Sleep(period)
		synctest.Wait()
		r.record(app) // the period is a new one
		lines, repeats := r.count(t)
		if text := r.w.text(); strings.Contains(text, `"count":1}`) {
			t.Errorf("a line of one call has a number: %s", text)
		}
		want := map[string]int{"auth": 1 + 1 + 1, "flushdb": 2, "acl|list": 2}
		if !maps.Equal(lines, want) || repeats != 4999 || r.Dropped() > 0 {
			t.Errorf("%v lines, want %v; %d repeats; %d dropped", lines, want, repeats,
				r.Dropped())
		}
	})
}

// floods are what fills a share of the trail, and goes on.
var floods = map[string]func(i int) Event{
	"denials of a stranger": func(i int) Event {
		return Event{Event: "flood", Object: strconv.Itoa(i), Outcome: "NOAUTH",
			Address: "10.0.0.1:1"}
	},
	"denials of strangers": func(i int) Event {
		return Event{Event: "flood", Object: strconv.Itoa(i), Outcome: "NOAUTH",
			Address: fmt.Sprintf("10.%d.%d.1:1", i>>8&255, i&255)}
	},
	"tries of a stranger": func(i int) Event {
		return Event{Event: "flood", Args: []string{strconv.Itoa(i)}, Outcome: "WRONGPASS",
			Address: "10.0.0.1:1", Try: true}
	},
	"tries of strangers": func(i int) Event {
		return Event{Event: "flood", Args: []string{strconv.Itoa(i)}, Outcome: "WRONGPASS",
			Address: fmt.Sprintf("10.%d.%d.1:1", i>>8&255, i&255), Try: true}
	},
	"changes of strangers": func(i int) Event {
		return Event{Event: "flood", Outcome: OK, Change: true,
			Address: fmt.Sprintf("10.%d.%d.1:1", i>>8&255, i&255)}
	},
	"denials of a user": func(i int) Event {
		return Event{Event: "flood", Object: strconv.Itoa(i), Outcome: "NOPERM", User: "mallory"}
	},
	"tries of a user": func(i int) Event {
		return Event{Event: "flood", Args: []string{strconv.Itoa(i)}, Outcome: "WRONGPASS",
			User: "mallory", Try: true}
	},
	"changes of a user": func(int) Event {
		return Event{Event: "flood", Outcome: OK, User: "mallory", Change: true}
	},
	"changes of users": func(i int) Event {
		return Event{Event: "acl|setuser", Args: []string{strconv.Itoa(i)}, Outcome: OK,
			User: "mallory", Change: true}
	},
}

// Whoever fills a share of the trail hides nothing of others, nor another kind of what it does,
// also while the writer hangs.
func TestNoShareHidesAnother(t *testing.T) {
	others := []struct {
		Event
		except []string // floods that take the same room
	}{
		{Event{Event: "a stranger's denial", Outcome: "NOAUTH", Address: "10.9.9.9:1"},
			[]string{"denials of strangers"}},
		{Event{Event: "a stranger's try", Outcome: "WRONGPASS", Address: "10.9.9.9:1",
			Try: true}, []string{"tries of strangers"}},
		{Event{Event: "a stranger's change", Outcome: OK, Address: "10.9.9.9:1", Change: true},
			[]string{"changes of strangers"}},
		{Event{Event: "its host's denial", Outcome: "NOAUTH", Address: "10.0.0.1:1"},
			[]string{"denials of a stranger", "denials of strangers"}},
		{Event{Event: "its host's try", Outcome: "WRONGPASS", Address: "10.0.0.1:1", Try: true},
			[]string{"tries of a stranger", "tries of strangers"}},
		{Event{Event: "a login", Outcome: OK, User: "default", Address: "10.0.0.1:1"}, nil},
		{Event{Event: "a denial", Outcome: "NOPERM", User: "app"}, nil},
		{Event{Event: "a change", Outcome: OK, User: "app", Change: true}, nil},
		{Event{Event: "acl|deluser", Outcome: OK, User: "app", Change: true}, nil},
		{Event{Event: "its denial", Outcome: "NOPERM", User: "mallory"},
			[]string{"denials of a user"}},
		{Event{Event: "its try", Outcome: "WRONGPASS", User: "mallory", Try: true},
			[]string{"tries of a user"}},
		{Event{Event: "its change", Outcome: OK, User: "mallory", Change: true},
			[]string{"changes of a user"}},
		{Event{Event: "acl|load", Outcome: OK, User: "mallory", Change: true},
			[]string{"changes of users"}},
	}
	for name, flood := range floods {
		check := func(t *testing.T, hangs bool) {
			synctest.Test(t, func(t *testing.T) {
				r := startTrail()
				if hangs {
					r.w.gate = make(chan struct{})
					r.record(Event{Event: "what it hangs with", Outcome: OK, Change: true})
				}
				for i := 0; r.Dropped() < 1000; i++ {
					if i == 20_000 {
						t.Fatal("it is not bounded")
					}
					r.record(flood(i))
				}
				for _, other := range others {
					r.record(other.Event)
				}
				if hangs {
					close(r.w.gate)
				}
				lines, _ := r.count(t)
				for _, other := range others {
					if lines[other.Event.Event] == 0 && !slices.Contains(other.except, name) {
						t.Errorf("hides %s", other.Event.Event)
					}
				}
			})
		}
		t.Run(name, func(t *testing.T) { check(t, false) })
		t.Run(name+" while the writer hangs", func(t *testing.T) { check(t, true) })
	}
}

// No flood makes the trail grow faster than its share, so the oldest lines stay for days.
func TestTrailGrowsSlowly(t *testing.T) {
	const periods, steps = 4, 3000
	for name, flood := range floods {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := startTrail()
				for i := range periods * steps {
					r.record(flood(i))
					time.Sleep(period / steps)
				}
				r.Close()
				burst := bursts[ofUser]
				if name == "changes of users" {
					burst = bursts[userChanges]
				}
				if n := len(r.w.text()); n > burst+periods*(more+1<<10) {
					t.Errorf("%d bytes in %d periods", n, periods)
				}
			})
		})
	}
}

// A full queue has of each share what it had, but for those that had the most.
func TestQueueIsShared(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		q := queue{most: 1 + r.IntN(100)}
		shares := 1 + r.IntN(20)
		came, lost := map[share]int{}, 0
		for range r.IntN(1000) {
			s := share{changes, strconv.Itoa(r.IntN(1+r.IntN(shares)) * r.IntN(2))}
			switch came[s]++; {
			case !q.hasPlace(s):
				lost++
			case q.add(Event{}, s):
				lost++
			}
		}
		has, all := map[share]int{}, 0
		for _, e := range q.drain() {
			has[e.of]++
			all++
		}
		for s, n := range came {
			if fair := min(n, q.most/len(came)-1); has[s] < fair {
				t.Errorf("%d of %v came, and of %d places it has %d; all: %v", n, s, q.most, has[s],
					came)
			}
			lost -= n
		}
		if lost+all != 0 || all > q.most {
			t.Errorf("%d are there, %d too many are lost", all, lost+all)
		}
	}
}
