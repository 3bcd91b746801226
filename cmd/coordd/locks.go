// coordd locks: who holds which lock, and what to do about it.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

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
	json   bool
}

// locksActions are what may follow coordd locks, with their other arguments.
var locksActions = map[string]struct {
	names []string
	run   func(context.Context, *locksCall) error
}{
	"list":    {nil, listLocks},
	"show":    {[]string{"KEY"}, showLock},
	"release": {[]string{"KEY"}, releaseLock},
	"extend":  {[]string{"KEY", "DURATION, such as 30s"}, extendLock},
}

func runLocks(ctx context.Context, args []string, c console) error {
	call := &locksCall{console: c}
	flags := newFlagSet("coordd locks")
	of := addObserver(flags)
	flags.IntVar(&call.db, "db", 0, "number of the database (default 0)")
	flags.StringVar(&call.prefix, "prefix", "", "list: only keys that begin with it")
	flags.StringVar(&call.group, "group", observe.Locks,
		"list: locks, windows, queues, or all keys (default locks)")
	flags.IntVar(&call.most, "limit", 1000, "list: keys to print (default 1000)")
	flags.StringVar(&call.token, "token", "",
		"release, extend: the lock's fencing token, as list and show print it. If the lock has "+
			"another holder by now, nothing is done")
	flags.BoolVar(&call.json, "json", false, "list, show: print JSON")
	action, args, err := locksAction(flags, args)
	if err != nil {
		return err
	}
	todo := locksActions[action]
	if call.names, err = parseArgs(flags, args, todo.names...); err != nil {
		return err
	}
	if call.client, _, err = of.client(c.getenv); err != nil {
		return err
	}
	defer call.client.Close()
	return todo.run(ctx, call)
}

// locksAction returns the action, which is the first argument, and the others.
func locksAction(flags *flag.FlagSet, args []string) (string, []string, error) {
	if len(args) > 0 {
		if _, ok := locksActions[args[0]]; ok {
			return args[0], args[1:], nil
		}
		if _, err := parseArgs(flags, args, ""); errors.As(err, new(helpRequest)) {
			return "", nil, err
		}
	}
	return "", nil, usageError{errors.New("coordd locks requires list, show, release or extend")}
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
	fmt.Fprintln(t, "KEY\tKIND\tOWNER\tTOKEN\tTIME LEFT\tSIZE")
	for i := range all {
		e := &all[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", e.Key, kindText(e), e.Owner, e.Token,
			leftText(e), sizeText(e))
	}
	if err := t.Flush(); err != nil || !more {
		return err
	}
	_, err := fmt.Fprintln(c.stderr, "there are more: raise --limit, or set --prefix")
	return err
}

func kindText(e *observe.Entry) string {
	switch {
	case e.Kind == observe.KindOther:
		return e.Type
	case e.Holds > 1:
		return fmt.Sprintf("%s × %d", e.Kind, e.Holds)
	}
	return e.Kind
}

func leftText(e *observe.Entry) string {
	if e.TTLMs < 0 {
		return "no end"
	}
	return spanText(time.Duration(e.TTLMs) * time.Millisecond)
}

func sizeText(e *observe.Entry) string {
	if e.IsLock() {
		return ""
	}
	return fmt.Sprint(e.Size)
}

func showLock(ctx context.Context, c *locksCall) error {
	e, err := c.client.EntryOf(ctx, c.db, c.names[0])
	switch {
	case err != nil:
		return err
	case e == nil:
		return fmt.Errorf("nobody holds %s: there is no such key", observe.Show(c.names[0]))
	case c.json:
		return json.NewEncoder(c.stdout).Encode(e)
	}
	t := newTable(c.stdout)
	for _, row := range [][2]string{{"key", e.Key}, {"kind", kindText(e)}, {"owner", e.Owner},
		{"token", e.Token}, {"time left", leftText(e)}, {"size", sizeText(e)}} {
		if row[1] != "" {
			fmt.Fprintf(t, "%s\t%s\n", row[0], row[1])
		}
	}
	return t.Flush()
}

// held returns the lock that an action is about.
func (c *locksCall) held(ctx context.Context) (*observe.Entry, error) {
	if c.token == "" {
		return nil, usageError{errors.New("--token is required: coordd locks show prints it")}
	}
	e, err := c.client.EntryOf(ctx, c.db, c.names[0])
	switch {
	case err != nil:
		return nil, err
	case e == nil || e.Token != c.token:
		return nil, observe.ErrChanged
	case !e.IsLock():
		return nil, fmt.Errorf("%s is no lock, but a %s", e.Key, strings.TrimSpace(kindText(e)))
	}
	return e, nil
}

func releaseLock(ctx context.Context, c *locksCall) error {
	e, err := c.held(ctx)
	if err != nil {
		return err
	}
	if err := c.client.Release(ctx, c.db, c.names[0], e.Kind, c.token); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "released %s, held by %s\n", e.Key, e.Owner)
	return err
}

func extendLock(ctx context.Context, c *locksCall) error {
	d, err := time.ParseDuration(c.names[1])
	if err != nil || d < time.Millisecond {
		return usageError{fmt.Errorf("%q is no duration of at least 1ms, such as 30s", c.names[1])}
	}
	e, err := c.held(ctx)
	if err != nil {
		return err
	}
	if err := c.client.Extend(ctx, c.db, c.names[0], c.token, d.Milliseconds()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "%s, held by %s, ends in %v\n", e.Key, e.Owner, d)
	return err
}
