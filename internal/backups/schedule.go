package backups

import (
	"context"
	"log/slog"
	"time"
)

// Pauses after a failure: each is twice the one before.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Schedule takes a backup in each interval.
type Schedule struct {
	To    Store
	Every time.Duration
	Keep  int // backups; 0: all
	Take  Take
	Check Check
	Log   *slog.Logger
}

// Run runs until ctx ends. The first backup is due one interval after the newest that is there,
// also if an earlier process took it. After a failure it tries again soon.
func (s *Schedule) Run(ctx context.Context) {
	s.Log.Info("backups scheduled", "every", s.Every, "keep", s.Keep, "to", s.To.String(""))
	retry := firstRetry
	for pause := s.untilNext(ctx); passes(ctx, pause); {
		began := time.Now()
		b, err := Add(ctx, s.To, s.Keep, s.Take, s.Check)
		for _, old := range b.Unread {
			s.Log.Warn("an old backup stays", "error", old)
		}
		switch {
		case b.Where != "" && err != nil:
			s.Log.Warn("backup taken", "trouble", err)
		case ctx.Err() != nil:
		case err != nil:
			pause = min(retry, s.Every)
			retry = min(2*retry, lastRetry)
			s.Log.Error("backup failed", "error", err, "next-try-in", pause)
			continue
		default:
			s.Log.Info("backup taken", "file", b.Where, "keys", b.Keys, "bytes", b.Bytes,
				"epoch", b.Epoch, "index", b.Index, "removed", b.Removed,
				"took", time.Since(began))
		}
		pause, retry = max(s.Every-time.Since(began), 0), firstRetry
	}
	s.Log.Info("backups stopped")
}

// untilNext returns the time until the first backup is due. If the store does not tell, it is due:
// the attempt reports the error.
func (s *Schedule) untilNext(ctx context.Context) time.Duration {
	names, err := kept(ctx, s.To)
	if err != nil || len(names) == 0 {
		return 0
	}
	newest, _ := timeOf(names[len(names)-1])
	age := time.Since(newest)
	if age < 0 { // the clock was set back
		return 0
	}
	return max(s.Every-age, 0)
}

// passes reports whether d passed before ctx ended.
func passes(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}
