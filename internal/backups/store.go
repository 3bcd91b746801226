package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coordd/fsm"
)

// Take writes a complete backup to w, or returns an error.
type Take func(ctx context.Context, w io.Writer) (fsm.BackupInfo, error)

// Check reads a backup as a restore would, and says what it holds.
type Check func(io.Reader) (fsm.BackupInfo, error)

// Store holds files under names.
type Store interface {
	// Put stores what take writes. The file appears under its name complete or not at all. Names
	// are new: Add gives later ones than those that are there.
	Put(ctx context.Context, name string, take Take) (fsm.BackupInfo, error)
	Open(ctx context.Context, name string) (*File, error)
	// Names lists the files that are there, backups and others.
	Names(ctx context.Context) ([]string, error)
	// Remove removes a file. It is no error if there is none.
	Remove(ctx context.Context, name string) error
	// String returns where a file is, to people.
	String(name string) string
}

// File is a file of a store, to read.
type File struct {
	io.ReadCloser
	Bytes   int64
	Written time.Time
}

// Open opens a file, or s3://bucket/prefix/name with the variables of OpenBucket.
func Open(ctx context.Context, target string, getenv func(string) string) (*File, error) {
	if !IsBucket(target) {
		return Directory("").Open(ctx, target)
	}
	at := strings.LastIndexByte(target, '/')
	bucket, name := target[:at], target[at+1:]
	if len(bucket) < len(bucketScheme) || name == "" {
		return nil, errors.New("must be s3://bucket/name or s3://bucket/prefix/name")
	}
	b, err := OpenBucket(bucket, getenv)
	if err != nil {
		return nil, err
	}
	return b.Open(ctx, name)
}

// A backup's name holds its time in UTC. Names sort by it.
const (
	namePrefix = "backup-"
	nameTime   = "20060102T150405.000Z"
	nameSuffix = ".coordd"
)

func nameOf(at time.Time) string {
	return namePrefix + at.UTC().Format(nameTime) + nameSuffix
}

// timeOf returns the time in a backup's name. ok is false for other files.
func timeOf(name string) (at time.Time, ok bool) {
	text, ok := strings.CutPrefix(name, namePrefix)
	text, ended := strings.CutSuffix(text, nameSuffix)
	at, err := time.Parse(nameTime, text)
	return at, ok && ended && err == nil
}

// kept returns the names of the backups in a store, the oldest first.
func kept(ctx context.Context, s Store) ([]string, error) {
	names, err := s.Names(ctx)
	names = slices.DeleteFunc(names, func(name string) bool {
		_, ok := timeOf(name)
		return !ok
	})
	slices.Sort(names)
	return names, err
}

// Backup is one that was stored and checked.
type Backup struct {
	fsm.BackupInfo
	Where   string
	Removed int     // older ones that went for it
	Unread  []error // one for each older one that stays because it cannot be read
}

// Add takes a backup, reads it again from the store, and then removes the oldest ones but keep; 0
// keeps all. So the last good one stays as long as there is no newer one of the same cluster.
func Add(ctx context.Context, s Store, keep int, take Take, check Check) (Backup, error) {
	before, err := kept(ctx, s)
	if err != nil {
		return Backup{}, err
	}
	// later than the others, even if the clock was set back: retention goes by the names
	at := time.Now()
	if len(before) > 0 {
		newest, _ := timeOf(before[len(before)-1])
		if next := newest.Add(time.Millisecond); at.Before(next) {
			at = next
		}
	}
	name := nameOf(at)
	info, err := s.Put(ctx, name, take)
	if err != nil {
		return Backup{}, err
	}
	if err := readBack(ctx, s, name, info, check); err != nil {
		// without the caller's context: a bad backup must not pass for the newest good one
		return Backup{}, errors.Join(err, s.Remove(context.WithoutCancel(ctx), name))
	}
	b := Backup{BackupInfo: info, Where: s.String(name)}
	if keep > 0 && len(before) >= keep {
		err = b.removeOld(ctx, s, before, keep)
	}
	return b, err
}

// removeOld removes the oldest of the backups that were there before b, so that keep are left with
// it. All of them are looked at: b must be of their cluster. One that cannot be read proves
// nothing, may be all that another cluster has, and is no copy to count on: it stays and is not
// counted.
func (b *Backup) removeOld(ctx context.Context, s Store, before []string, keep int) error {
	var old []string
	for _, name := range before {
		info, err := infoOf(ctx, s, name)
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("%s is good, but no old one was removed: %w", b.Where, ctx.Err())
		case err != nil:
			b.Unread = append(b.Unread, fmt.Errorf("%s cannot be read: %w", s.String(name), err))
		case ahead(info, b.BackupInfo):
			return fmt.Errorf("%s is good, but no old one was removed: %s is ahead, so it is of "+
				"another cluster, or from before this one was founded again or restored",
				b.Where, s.String(name))
		default:
			old = append(old, name)
		}
	}
	for _, name := range old[:max(len(old)+1-keep, 0)] {
		if err := s.Remove(ctx, name); err != nil {
			return fmt.Errorf("%s is good, but an old one stays: %w", b.Where, err)
		}
		b.Removed++
	}
	return nil
}

// infoOf reads what a stored backup says of itself.
func infoOf(ctx context.Context, s Store, name string) (fsm.BackupInfo, error) {
	r, err := s.Open(ctx, name)
	if err != nil {
		return fsm.BackupInfo{}, err
	}
	defer r.Close()
	return fsm.ReadBackupInfo(r)
}

// ahead reports whether a backup cannot be from before another one of the same cluster. Epoch and
// log index only rise, also by a restore or recovery, and the cluster's clock goes on from where it
// was.
func ahead(old, info fsm.BackupInfo) bool {
	return old.Epoch > info.Epoch || old.Epoch == info.Epoch && old.Index > info.Index ||
		old.ClockMs > info.ClockMs
}

// readBack reads a stored backup and compares it with what was sent.
func readBack(ctx context.Context, s Store, name string, want fsm.BackupInfo, check Check) error {
	r, err := s.Open(ctx, name)
	if err != nil {
		return err
	}
	defer r.Close()
	return compare(r, s.String(name), want, check)
}

// compare reads a stored backup and compares it with what was sent.
func compare(r io.Reader, where string, want fsm.BackupInfo, check Check) error {
	switch got, err := check(r); {
	case err != nil:
		return fmt.Errorf("%s was stored, but reading it fails: %w", where, err)
	case got != want:
		return fmt.Errorf("%s was stored, but it is not what was sent", where)
	}
	return nil
}
