// Changes of the configuration while the node runs: SIGHUP reads the file again, CONFIG REWRITE
// writes it.

package main

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/coordd/coordd/internal/lockorder"
	"github.com/coordd/coordd/internal/node"
	"github.com/coordd/coordd/server"
)

// reloader keeps a node's options and its configuration file in step.
type reloader struct {
	read   readConfig
	getenv func(string) string
	file   string // the configuration; empty: there is none
	log    *slog.Logger
	level  *slog.LevelVar

	mu  lockorder.Mutex
	now []setting // in force, of each option
}

// reload is SIGHUP: it reads certificates and the configuration file again, and reopens the audit
// log.
func (r *reloader) reload(n *node.Node) {
	_ = n.Reload() // it logs
	if err := r.reloadOptions(n); err != nil {
		r.log.Error("the configuration is invalid; nothing of it changes", "error", err)
	}
}

// reloadOptions applies to the node what can change while it runs. An invalid configuration changes
// nothing.
func (r *reloader) reloadOptions(n *node.Node) error {
	if r.file == "" {
		return nil // flags and the environment do not change
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.read.checked(r.getenv)
	if err != nil {
		return err
	}
	var changed []int
	var values []server.Parameter
	for i, o := range options {
		l := liveNamed(o.name)
		switch old, now := r.now[i].value, c.said[i].value; {
		case old == now:
		case l == nil:
			r.log.Warn("option changed; it takes effect at the next start", "option", o.name,
				"from", shown(old), "to", shown(now))
		default:
			changed = append(changed, i)
			if l.param != "" {
				value := l.paramValue(c, now)
				values = append(values, server.Parameter{Name: l.param, Value: value})
			}
		}
	}
	if err := n.Configure(values); err != nil {
		return fmt.Errorf("%s: %w", r.file, err)
	}
	setLevel(r.level, c.logLevel)
	for _, i := range changed {
		r.log.Info("option changed", "option", options[i].name, "from", r.now[i].value, "to",
			c.said[i].value)
		r.now[i] = c.said[i]
	}
	return nil
}

// rewrite has the configuration file say the parameters that CONFIG SET changed.
func (r *reloader) rewrite(find func() []server.Parameter) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := find()
	if err := rewriteFile(r.file, changed); err != nil {
		return err
	}
	for _, p := range changed {
		l := liveFor(p.Name)
		i := slices.IndexFunc(options, func(o option) bool { return o.name == l.name })
		if by := r.now[i].by; by != "" {
			r.log.Warn("CONFIG REWRITE wrote an option that is also set elsewhere; the next "+
				"start takes it from there", "option", l.name, "set_by", by)
			continue
		}
		r.now[i].value = l.optionValue(p.Value)
	}
	return nil
}
