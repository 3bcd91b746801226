// What the node tells systemd, if that started it (sd_notify): when it is ready, reloads and stops,
// and that it is alive.

package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/coordd/coordd/internal/lockorder"
)

// leaderPatience is how long a node that waits for a leader is not ready. A new cluster has none
// before a majority runs, and its nodes may be started one after the other, each when the previous
// one is ready (docs/adr/0027).
const leaderPatience = 30 * time.Second

// supervised is the part of a *node.Node that systemd hears of.
type supervised interface {
	ID() string
	WaitReady(context.Context) error
	CheckAlive(context.Context) error
}

// supervisor tells systemd of a node. Without systemd it does nothing.
type supervisor struct {
	node supervised
	log  *slog.Logger

	mu    lockorder.Mutex
	ready bool // systemd knows
}

func (s *supervisor) notify(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		s.log.Warn("cannot notify systemd", "error", err)
	}
}

// run tells systemd that the node is ready, and then that it is alive, until ctx ends.
func (s *supervisor) run(ctx context.Context, patience time.Duration) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	status := "node " + s.node.ID() + " serves commands"
	if s.node.WaitReady(waiting) != nil {
		status = "node " + s.node.ID() + " has found no leader yet"
	}
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	s.ready = true
	s.notify(daemon.SdNotifyReady + "\nSTATUS=" + status)
	s.mu.Unlock()
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("the watchdog of systemd is off", "error", err)
	}
	if every > 0 {
		s.watch(ctx, every/3)
	}
}

// watch tells systemd that the node is alive, as long as it is.
func (s *supervisor) watch(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		asked, cancel := context.WithTimeout(ctx, every)
		err := s.node.CheckAlive(asked)
		cancel()
		if err == nil {
			s.notify(daemon.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			s.log.Error("systemd is not told that the node is alive", "error", err)
		}
	}
}

// reload tells systemd of a reload while it lasts.
func (s *supervisor) reload(reload func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		reload()
		return
	}
	s.notify(daemon.SdNotifyReloading)
	reload()
	s.notify(daemon.SdNotifyReady)
}

func (s *supervisor) stopping() { s.notify(daemon.SdNotifyStopping) }
