package backups

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/fsm"
	"github.com/coordd/coordd/internal/tests/wait"
)

// state is a small backup.
func state(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	m := fsm.NewMachine(commands.NewTable(commands.Specs()))
	if _, err := m.Snapshot().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// taking returns a Take that sends the state.
func taking(state []byte) Take {
	return func(_ context.Context, w io.Writer) (fsm.BackupInfo, error) {
		return check(io.TeeReader(bytes.NewReader(state), w))
	}
}

func check(r io.Reader) (fsm.BackupInfo, error) {
	return fsm.CheckSnapshot(r, commands.NewTable(commands.Specs()))
}

// add adds a backup and returns its name.
func add(t *testing.T, s Store, keep int, state []byte) string {
	t.Helper()
	b, err := Add(t.Context(), s, keep, taking(state), check)
	if err != nil {
		t.Fatal(err)
	}
	return b.Where[strings.LastIndexByte(b.Where, '/')+1:]
}

func keptIn(t *testing.T, s Store) []string {
	t.Helper()
	names, err := kept(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// checkRetention adds backups to an empty store: the newest stay, in the order in which they were
// taken even if the clock was set back, and other files are left alone.
func checkRetention(t *testing.T, s Store) {
	t.Helper()
	good := state(t)
	tomorrow := nameOf(time.Now().Add(24 * time.Hour))
	for _, name := range []string{"other" + nameSuffix, tomorrow} {
		if _, err := s.Put(t.Context(), name, taking(good)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{tomorrow}
	for range 4 {
		want = append(want, add(t, s, 3, good))
	}
	if got := keptIn(t, s); !slices.Equal(got, want[2:]) {
		t.Errorf("kept %v of %v", got, want)
	}
	all, err := s.Names(t.Context())
	if err != nil || !slices.Contains(all, "other"+nameSuffix) {
		t.Error("a file that is no backup was removed:", all, err)
	}
	if err := s.Remove(t.Context(), want[0]); err != nil {
		t.Error("one that is gone:", err)
	}
}

// A backup that is behind the newest one is of another cluster, or of one that was founded again:
// it removes nothing. One of a later epoch does.
func TestAnotherClusterRemovesNothing(t *testing.T) {
	s := Directory(t.TempDir())
	at := func(epoch uint64) []byte {
		m := fsm.NewMachine(commands.NewTable(commands.Specs()))
		var b bytes.Buffer
		_, _, err := m.ContinueAbove(keyspace.NewRevision(epoch, 0, 0))
		if err == nil {
			_, err = m.Snapshot().WriteTo(&b)
		}
		if err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	add(t, s, 1, at(3))
	b, err := Add(t.Context(), s, 1, taking(at(2)), check)
	if err == nil || b.Where == "" || b.Removed != 0 || len(keptIn(t, s)) != 2 {
		t.Errorf("%+v, %v: %v", b, err, keptIn(t, s))
	}
	// nor in the runs after it, of which the newest is its own
	again, err := Add(t.Context(), s, 1, taking(at(2)), check)
	if err == nil || again.Removed != 0 || len(keptIn(t, s)) != 3 {
		t.Errorf("%+v, %v: %v", again, err, keptIn(t, s))
	}
	for _, b := range []Backup{b, again} {
		name := b.Where[strings.LastIndexByte(b.Where, '/')+1:]
		if err := s.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	last := add(t, s, 1, at(4))
	if got := keptIn(t, s); !slices.Equal(got, []string{last}) {
		t.Errorf("kept %v", got)
	}
}

// What cannot be read stays, is told at each backup, and keeps none of the others.
func TestUnreadableBackupsStay(t *testing.T) {
	s, good := Directory(t.TempDir()), state(t)
	first := add(t, s, 0, good)
	damaged := nameOf(time.Now().Add(time.Second))
	for name, text := range map[string][]byte{damaged: good[:len(good)/8],
		nameOf(time.Now().Add(time.Minute)): nil} {
		if err := os.WriteFile(s.String(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for runs := range 4 {
		b, err := Add(t.Context(), s, 2, taking(good), check)
		if err != nil || len(b.Unread) != 2 || !strings.Contains(b.Unread[0].Error(), damaged) ||
			b.Removed != min(runs, 1) {
			t.Errorf("run %d: %+v, %v", runs, b, err)
		}
	}
	left := keptIn(t, s)
	if len(left) != 4 || left[0] != damaged || slices.Contains(left, first) {
		t.Errorf("after %s these stay: %v", first, left)
	}
}

func TestRetention(t *testing.T) { checkRetention(t, Directory(t.TempDir())) }

// badReads is a store that returns what it got with a flipped bit.
type badReads struct{ Store }

func (b badReads) Open(ctx context.Context, name string) (*File, error) {
	f, err := b.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	text[len(text)/2] ^= 1
	return &File{ReadCloser: io.NopCloser(bytes.NewReader(text))}, err
}

// checkFailures has backups fail before, amid and after their transfer: they leave nothing, and the
// last good one stays.
func checkFailures(t *testing.T, s Store) {
	t.Helper()
	good := state(t)
	last := add(t, s, 1, good)
	broken := errors.New("the node is away")
	if _, err := Add(t.Context(), s, 1, func(context.Context, io.Writer) (fsm.BackupInfo, error) {
		return fsm.BackupInfo{}, broken
	}, check); !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := Add(t.Context(), s, 1, func(_ context.Context, w io.Writer) (fsm.BackupInfo,
		error) {
		_, _ = w.Write(good[:len(good)/2])
		return fsm.BackupInfo{}, broken
	}, check); !errors.Is(err, broken) {
		t.Error(err)
	}
	if _, err := Add(t.Context(), badReads{s}, 1, taking(good), check); err == nil ||
		!strings.Contains(err.Error(), "was stored, but reading it fails: snapshot is corrupt") {
		t.Error(err)
	}
	if got, err := s.Names(t.Context()); err != nil || !slices.Equal(got, []string{last}) {
		t.Error("left over:", got, err)
	}
}

func TestFailedBackups(t *testing.T) {
	dir := t.TempDir()
	checkFailures(t, Directory(dir))
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Error("left over:", left, err)
	}
}

// A process that is killed leaves a temporary file, which a later one removes.
func TestStaleTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	young, old := nameOf(time.Now())+".1.tmp", nameOf(time.Now())+".2.tmp"
	mine := "mine.coordd.3.tmp"
	for _, name := range []string{young, old, mine} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-2 * staleAfter)
	for _, name := range []string{old, mine} {
		if err := os.Chtimes(filepath.Join(dir, name), past, past); err != nil {
			t.Fatal(err)
		}
	}
	add(t, Directory(dir), 1, state(t))
	for name, want := range map[string]bool{young: true, old: false, mine: true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSchedule takes backups while the cluster is away at times, and ends.
func TestSchedule(t *testing.T) {
	dir, good := Directory(t.TempDir()), state(t)
	var taken, away atomic.Int64
	var log wait.Buffer
	s := &Schedule{To: dir, Every: 20 * time.Millisecond, Keep: 3, Check: check,
		Log: slog.New(slog.NewTextHandler(&log, nil)),
		Take: func(ctx context.Context, w io.Writer) (fsm.BackupInfo, error) {
			if away.Load() > 0 {
				away.Add(1)
				return fsm.BackupInfo{}, errors.New("the cluster is away")
			}
			taken.Add(1)
			return taking(good)(ctx, w)
		}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	more := func(what string, n *atomic.Int64) {
		before := n.Load()
		wait.For(t, 20*time.Second, what, func() bool { return n.Load() > before+4 })
	}
	more("backups", &taken)
	away.Store(1)
	more("attempts", &away)
	if got := keptIn(t, dir); len(got) < 3 {
		t.Error("while the cluster was away, there are only", got)
	}
	away.Store(0)
	more("backups after the cluster is back", &taken)
	cancel()
	wait.Receive(t, 30*time.Second, "the end of the schedule", done)
	for _, says := range []string{"backups scheduled", "backup taken", "backup failed",
		"the cluster is away", "next-try-in=20ms", "removed=1", "backups stopped"} {
		if !strings.Contains(log.String(), says) {
			t.Errorf("the log does not say %q: %s", says, log.String())
		}
	}
	if got := keptIn(t, dir); len(got) != 3 {
		t.Error(got)
	}
}

// A process that starts again goes on with the schedule.
func TestScheduleContinues(t *testing.T) {
	for name, c := range map[string]struct {
		age       time.Duration
		low, high time.Duration
	}{
		"young": {20 * time.Minute, 39 * time.Minute, 40 * time.Minute},
		"due":   {2 * time.Hour, 0, 0},
		"ahead": {-2 * time.Hour, 0, 0},
	} {
		dir := Directory(t.TempDir())
		s := &Schedule{To: dir, Every: time.Hour}
		if got := s.untilNext(t.Context()); got != 0 {
			t.Error("an empty directory:", got)
		}
		if err := os.WriteFile(dir.String(nameOf(time.Now().Add(-c.age))), nil,
			0o600); err != nil {
			t.Fatal(err)
		}
		if got := s.untilNext(t.Context()); got < c.low || got > c.high {
			t.Errorf("%s: %v", name, got)
		}
	}
}
