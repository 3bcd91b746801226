// XNACK of Redis 8.8: a consumer gives back what it does not process.

package commands

import (
	"math"

	"github.com/coordd/coordd/commands/keyspace"
	"github.com/coordd/coordd/internal/resp"
)

// Errors of XNACK.
const (
	errNackMode   Error = "ERR mode must be SILENT, FAIL, or FATAL"
	errNackNumber Error = "ERR numids must be a positive integer"
	errNackCount  Error = "ERR number of IDs doesn't match numids"
	errNackIDs    Error = "ERR syntax error, expected IDS keyword"
	errNackRetry  Error = "ERR Invalid RETRYCOUNT value, must be >= 0"
)

// nackArgs are the arguments of XNACK after the group.
type nackArgs struct {
	silent, fatal bool // neither: FAIL
	ids           [][]byte
	retries       int64 // -1: not given
	force         bool
}

func (a *nackArgs) parse(args [][]byte) error {
	switch mode := args[0]; {
	case isWord(mode, "SILENT"):
		a.silent = true
	case isWord(mode, "FATAL"):
		a.fatal = true
	case !isWord(mode, "FAIL"):
		return errNackMode
	}
	a.retries = -1
	for args = args[1:]; len(args) > 0; {
		word, more := args[0], len(args) > 1
		args = args[1:]
		switch {
		case isWord(word, "FORCE"):
			a.force = true
		case isWord(word, "IDS") && more:
			n, ok := ParseInt(args[0])
			if !ok || n < 1 || n > math.MaxInt32 {
				return errNackNumber
			}
			if args = args[1:]; n > int64(len(args)) {
				return errNackCount
			}
			a.ids, args = args[:n], args[n:]
		case isWord(word, "RETRYCOUNT") && more:
			var ok bool
			if a.retries, ok = ParseInt(args[0]); !ok {
				return ErrNotInteger
			}
			if a.retries < 0 {
				return errNackRetry
			}
			args = args[1:]
		default:
			return Errorf("ERR Unrecognized XNACK option '%s'", resp.CText(word))
		}
	}
	if a.ids == nil {
		return errNackIDs
	}
	return nil
}

// deliveries returns the number of deliveries of an entry that had n.
func (a *nackArgs) deliveries(n int64) int64 {
	switch {
	case a.retries >= 0:
		return a.retries
	case a.fatal:
		return math.MaxInt64
	case a.silent && n > 0:
		return n - 1
	}
	return n
}

func xnack(x *Call) error {
	s, g, err := mustFindGroup(x, x.Args[1], x.Args[2])
	if err != nil {
		return err
	}
	var a nackArgs
	if err := a.parse(x.Args[3:]); err != nil {
		return err
	}
	ids, err := parseStreamIDs(a.ids)
	if err != nil {
		return err
	}
	x.Spend((pendingWork + claimedWork*deep(g.Pending())) * len(ids))
	x.spendOwners(g, ids)
	var e *keyspace.Entry
	var released int64
	for _, id := range ids {
		p, pending := g.FindPending(id)
		if _, exists := s.Get(id); !pending && (!a.force || !exists) {
			continue
		}
		if e == nil {
			e, s = editStream(x, x.Args[1])
			g = s.EditGroup(x.Args[2])
		}
		g.Release(id, a.deliveries(p.Deliveries))
		released++
	}
	if e != nil {
		x.DB().Noted(e, true) // wakes those that claim
	}
	x.Out.Int(released)
	return nil
}
