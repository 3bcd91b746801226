package tlsconf

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Files are replaced one after the other: they are read once their directories are quiet. They are
// also read every readEvery, for file systems that report no changes, and for a directory that was
// replaced itself.
const (
	quiet     = 200 * time.Millisecond
	readEvery = time.Minute
)

// Watch reloads the files when they change, until ctx ends. It watches their directories:
// Kubernetes and others replace a link, not the file.
func (s *Store) Watch(ctx context.Context) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		s.cfg.Logger.Warn("certificate files cannot be watched, they are read every minute",
			"certificate", s.cfg.Name, "error", err)
		w = &fsnotify.Watcher{} // reports nothing
	} else {
		defer w.Close()
	}
	regular := time.NewTicker(readEvery)
	defer regular.Stop()
	changed := time.NewTimer(0) // the files may have changed since Open
	defer changed.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.Events:
			changed.Reset(quiet)
		case <-w.Errors: // events were lost
			changed.Reset(quiet)
		case <-changed.C:
			s.follow(w)
			_ = s.Reload() // it logs
		case <-regular.C:
			s.follow(w)
			_ = s.Reload()
			s.mu.Lock()
			s.warn(time.Now())
			s.mu.Unlock()
		}
	}
}

// follow watches the directories of the files and of what they link to. A directory that is watched
// already stays so.
func (s *Store) follow(w *fsnotify.Watcher) {
	if w.Events == nil {
		return
	}
	for _, path := range []string{s.cfg.Cert, s.cfg.Key, s.cfg.CA} {
		if path == "" {
			continue
		}
		_ = w.Add(filepath.Dir(path)) // if it fails, the files are read every readEvery
		if target, err := filepath.EvalSymlinks(path); err == nil {
			_ = w.Add(filepath.Dir(target))
		}
	}
}
