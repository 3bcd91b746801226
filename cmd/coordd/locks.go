// coordd locks: who holds which lock, and what to do about it.

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coordd/internal/observe"
)

// locksCall is a call of coordd locks after its command line was read.
type locksCall struct {
	console
	client *observe.Client
	names  []string // the arguments besides flags
	db     int
	prefix string
	group  string
	most   int
	token  string
	owner  string // empty: the first one
	json   bool
}

func newLocks(c console) *cobra.Command {
	call := &locksCall{console: c}
	cmd := &cobra.Command{
		Use:   "locks list|show KEY|release KEY|extend KEY DURATION",
		Short: "Lists locks, windows, queues; shows who holds a lock; releases or extends one",
	}
	flags := cmd.PersistentFlags()
	of := addObserver(flags)
	flags.IntVar(&call.db, "db", 0, "number of the database (default 0)")
	flags.StringVar(&call.prefix, "prefix", "", "list: only keys that begin with it")
	flags.StringVar(&call.group, "group", observe.Locks,
		"list: locks, windows, queues, or all keys")
	flags.IntVar(&call.most, "limit", 1000, "list: keys to print")
	flags.StringVar(&call.token, "token", "",
		"release, extend: the lock's fencing token, as list and show print it. If the lock has "+
			"another holder by now, nothing is done")
	flags.StringVar(&call.owner, "owner", "",
		"release, extend: the owner, if there are several (default that of the token)")
	flags.BoolVar(&call.json, "json", false, "list, show: print JSON")
	add := func(use, short string, run func(context.Context, *locksCall) error, names ...string) {
		cmd.AddCommand(&cobra.Command{
			Use: use, Short: short, Args: arguments(names...),
			RunE: func(cmd *cobra.Command, args []string) (err error) {
				if call.client, _, err = of.client(c.getenv); err != nil {
					return err
				}
				defer call.client.Close()
				call.names = args
				return run(cmd.Context(), call)
			},
		})
	}
	add("list", "Lists locks, windows or queues", listLocks)
	add("show KEY", "Shows who holds a lock, who waits, and who held it before", showLock, "KEY")
	add("release KEY", "Releases a lock", releaseLock, "KEY")
	add("extend KEY DURATION", "Has a lock end after a duration from now", extendLock, "KEY",
		"DURATION, such as 30s")
	return cmd
}

func listLocks(ctx context.Context, c *locksCall) error {
	all := []observe.Entry{}
	more := false
	for q := (observe.Query{Group: c.group, DB: c.db, Prefix: c.prefix, Most: c.most}); ; {
		found, err := c.client.Entries(ctx, q)
		if err != nil {
			return err
		}
		all = append(all, found.Shown...)
		if q.Cursor = found.Cursor; q.Cursor == "" || len(all) >= c.most {
			more = q.Cursor != "" || len(all) > c.most
			all = all[:min(len(all), c.most)]
			break
		}
	}
	if c.json {
		return json.NewEncoder(c.stdout).Encode(all)
	}
	t := newTable(c.stdout)
	if c.group == observe.Locks {
		fmt.Fprintln(t, "KEY\tKIND\tOWNER\tTOKEN\tHELD FOR\tTIME LEFT\tWAITING")
	} else {
		fmt.Fprintln(t, "KEY\tKIND\tSIZE\tTIME LEFT")
	}
	for i := range all {
		switch e := &all[i]; {
		case e.Group == observe.Locks:
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", e.Key, e.Kind, e.Owner, e.Token,
				millisText(e.HeldMs), leftText(e), e.Waiters)
		default:
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", e.Key, e.Kind, sizeText(e), leftText(e))
		}
	}
	if err := t.Flush(); err != nil || !more {
		return err
	}
	_, err := fmt.Fprintln(c.stderr, "there are more: raise --limit, or set --prefix")
	return err
}

func sizeText(e *observe.Entry) string {
	if e.Size < 0 {
		return "–"
	}
	return fmt.Sprint(e.Size)
}

func millisText(ms int64) string { return spanText(time.Duration(ms) * time.Millisecond) }

func leftText(e *observe.Entry) string {
	if e.TTLMs < 0 {
		return "no end"
	}
	return millisText(e.TTLMs)
}

func showLock(ctx context.Context, c *locksCall) error {
	l, err := c.client.Lock(ctx, c.db, c.names[0])
	switch {
	case err != nil:
		return err
	case l == nil:
		return fmt.Errorf("nobody holds %s, and nobody is known to have",
			observe.Show(c.names[0]))
	case c.json:
		return json.NewEncoder(c.stdout).Encode(l)
	}
	t := newTable(c.stdout)
	fmt.Fprintf(t, "key\t%s\n", l.Key)
	if l.Holders > 0 {
		fmt.Fprintf(t, "kind\t%s\nowner\t%s\ntoken\t%s\nheld for\t%s\ntime left\t%s\n", l.Kind,
			l.Owner, l.Token, millisText(l.HeldMs), leftText(&l.Entry))
	}
	_ = t.Flush()
	if len(l.Holds) > 1 || l.Lease != "" {
		fmt.Fprintln(t, "\nHELD BY\tTOKEN\tCOUNT\tTIME LEFT\tLEASE")
		for _, o := range l.Holds {
			fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", o.Owner, o.Token, o.Count,
				leftText(&observe.Entry{TTLMs: o.TTLMs}), cmp.Or(o.Lease, "–"))
		}
		_ = t.Flush()
	}
	if len(l.Queue) > 0 {
		fmt.Fprintln(t, "\nIN THE QUEUE\tKIND\tPRIORITY\tFOR")
	}
	for _, q := range l.Queue {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", q.Owner, q.Kind, q.Priority, millisText(q.WaitsMs))
	}
	if more := l.Queued - int64(len(l.Queue)); more > 0 {
		fmt.Fprintf(t, "and %d more\n", more)
	}
	_ = t.Flush()
	if len(l.Waiting) > 0 {
		fmt.Fprintln(t, "\nWAITING\tFOR\tATTEMPTS\tLAST ATTEMPT")
	}
	for _, w := range l.Waiting {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s ago\n", w.Owner, millisText(w.WaitsMs), w.Attempts,
			millisText(w.SeenMs))
	}
	_ = t.Flush()
	if len(l.History) > 0 {
		fmt.Fprintln(t, "\nHELD BEFORE BY\tTOKEN\tFOR\tUNTIL\tEND")
	}
	for _, p := range l.History {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s ago\t%s\n", p.Owner, p.Token, millisText(p.HeldMs),
			millisText(p.AgoMs), p.End)
	}
	return t.Flush()
}

// held returns the lock that an action is about, and its owner.
func (c *locksCall) held(ctx context.Context) (l *observe.Lock, owner string, err error) {
	if c.token == "" {
		return nil, "", usageError{errors.New("--token is required: coordd locks show prints it")}
	}
	l, err = c.client.Lock(ctx, c.db, c.names[0])
	switch {
	case err != nil:
		return nil, "", err
	case l == nil:
		return nil, "", observe.ErrChanged
	}
	owner, held := l.Held(c.token)
	if !held {
		return nil, "", observe.ErrChanged
	}
	return l, cmp.Or(c.owner, owner), nil
}

func releaseLock(ctx context.Context, c *locksCall) error {
	l, owner, err := c.held(ctx)
	if err != nil {
		return err
	}
	if err := c.client.Release(ctx, c.db, c.names[0], owner, c.token); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "released %s, held by %s\n", l.Key, observe.Show(owner))
	return err
}

func extendLock(ctx context.Context, c *locksCall) error {
	d, err := time.ParseDuration(c.names[1])
	if err != nil || d < time.Millisecond {
		return usageError{fmt.Errorf("%q is no duration of at least 1ms, such as 30s", c.names[1])}
	}
	l, owner, err := c.held(ctx)
	if err != nil {
		return err
	}
	if err := c.client.Extend(ctx, c.db, c.names[0], owner, c.token, d.Milliseconds()); err != nil {
		return err
	}
	left := ""
	if lease := l.LeaseOf(owner); lease != "" {
		left = fmt.Sprintf(": renewals of its lease %s do not prolong it any more", lease)
	}
	_, err = fmt.Fprintf(c.stdout, "%s, held by %s, ends in %v%s\n", l.Key, observe.Show(owner), d,
		left)
	return err
}
