//go:build linux

// Registers, counters, lists, transactions and fixed windows: each key has a sequential model.

package lab

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coordd/coordd/internal/libm"
)

const compareAndSet = `
if (redis.call("get", KEYS[1]) or "nil") ~= ARGV[1] then return 0 end
redis.call("set", KEYS[1], ARGV[2])
return 1`

// value returns one that no other call writes.
func (a *actor) value() string { return fmt.Sprintf("c%d.%d", a.seat, a.turn) }

func registers(*work) player {
	return &keyed[string]{
		model: model[string]{first: "nil", step: func(s string, e *event) (string, string) {
			switch e.Op {
			case "set":
				return e.Args[0], "OK"
			case "compare-and-set":
				if s != e.Args[0] {
					return s, "0"
				}
				return e.Args[1], "1"
			}
			return s, s
		}},
		next: func(a *actor, key string) call {
			seen, _ := a.mem.(string)
			v := a.value()
			switch a.rnd.IntN(3) {
			case 0:
				a.mem = v
				return call{key: key, op: "set", args: []string{v}, ask: command("SET", key, v)}
			case 1:
				a.mem = v
				if seen == "" {
					seen = "nil"
				}
				return call{key: key, op: "compare-and-set", args: []string{seen, v},
					ask: command("EVAL", compareAndSet, 1, key, seen, v)}
			}
			return call{key: key, op: "get", reads: true, ask: command("GET", key)}
		},
	}
}

type number struct {
	there bool
	n     int64
}

func (n number) String() string {
	if !n.there {
		return "nil"
	}
	return fmt.Sprint(n.n)
}

func counters(*work) player {
	return &keyed[number]{
		model: model[number]{step: func(s number, e *event) (number, string) {
			if e.Op == "incrby" {
				by, _ := strconv.ParseInt(e.Args[0], 10, 64)
				s = number{true, s.n + by}
			}
			return s, s.String()
		}},
		next: func(a *actor, key string) call {
			if a.rnd.IntN(3) == 0 {
				return call{key: key, op: "get", reads: true, ask: command("GET", key)}
			}
			by := fmt.Sprint(a.rnd.IntN(7) - 2)
			return call{key: key, op: "incrby", args: []string{by},
				ask: command("INCRBY", key, by)}
		},
	}
}

// lists has elements of a list joined by blanks as its state.
func lists(*work) player {
	return &keyed[string]{model: model[string]{step: stepList}, next: nextOfList}
}

func stepList(s string, e *event) (string, string) {
	all := strings.Fields(s)
	switch e.Op {
	case "rpush":
		all = append(all, e.Args[0])
		return strings.Join(all, " "), fmt.Sprint(len(all))
	case "lpush":
		all = append([]string{e.Args[0]}, all...)
		return strings.Join(all, " "), fmt.Sprint(len(all))
	case "lrange":
		return s, "[" + s + "]"
	}
	if len(all) == 0 {
		return s, "nil"
	}
	switch e.Op {
	case "lpop":
		return strings.Join(all[1:], " "), all[0]
	case "rpop":
		return strings.Join(all[:len(all)-1], " "), all[len(all)-1]
	default: // lmove, from the left to the right
		return strings.Join(append(all[1:], all[0]), " "), all[0]
	}
}

func nextOfList(a *actor, key string) call {
	v := a.value()
	switch a.rnd.IntN(6) {
	case 0:
		return call{key: key, op: "rpush", args: []string{v}, ask: command("RPUSH", key, v)}
	case 1:
		return call{key: key, op: "lpush", args: []string{v}, ask: command("LPUSH", key, v)}
	case 2:
		return call{key: key, op: "lpop", ask: command("LPOP", key)}
	case 3:
		return call{key: key, op: "rpop", ask: command("RPOP", key)}
	case 4:
		return call{key: key, op: "lmove", ask: command("LMOVE", key, key, "LEFT", "RIGHT")}
	}
	return call{key: key, op: "lrange", reads: true, ask: command("LRANGE", key, 0, -1)}
}

const growScript = `
local x = tonumber(redis.call("get", KEYS[1]) or 1)
local y = math.exp(math.sin(x) * ARGV[1]) + x ^ 0.3 + math.log(1 + x * x)
redis.call("set", KEYS[1], string.format("%.17g", y))
return redis.call("get", KEYS[1])`

// computed stores what scripts compute, which is the same on each node and here.
func computed(*work) player {
	return &keyed[string]{
		model: model[string]{first: "nil", step: func(s string, e *event) (string, string) {
			if e.Op != "grow" {
				return s, s
			}
			x, err := strconv.ParseFloat(s, 64)
			if err != nil {
				x = 1
			}
			by, _ := strconv.ParseFloat(e.Args[0], 64)
			sine, _ := libm.Sin(x)
			exp, _ := libm.Exp(float64(sine * by))
			pow, _ := libm.Pow(x, 0.3)
			log, _ := libm.Log(1 + float64(x*x))
			s = strconv.FormatFloat(exp+pow+log, 'g', 17, 64)
			return s, s
		}},
		next: func(a *actor, key string) call {
			if a.rnd.IntN(3) == 0 {
				return call{key: key, op: "get", reads: true, ask: command("GET", key)}
			}
			by := fmt.Sprint(1 + a.rnd.IntN(6))
			return call{key: key, op: "grow", args: []string{by},
				ask: command("EVAL", growScript, 1, key, by)}
		},
	}
}

// accounts are the balances of one bank.
type accounts [3]int64

// transfers moves money between accounts, in transactions. Both changes are seen or none.
func transfers(*work) player {
	return &keyed[accounts]{
		model: model[accounts]{step: func(s accounts, e *event) (accounts, string) {
			if e.Op == "transfer" {
				var from, to int
				var sum int64
				_, _ = fmt.Sscan(strings.Join(e.Args, " "), &from, &to, &sum)
				s[from] -= sum
				s[to] += sum
				return s, fmt.Sprintf("[%d %d]", s[from], s[to])
			}
			return s, fmt.Sprint(s)
		}},
		next: func(a *actor, key string) call {
			from := a.rnd.IntN(3)
			to, sum := (from+1+a.rnd.IntN(2))%3, 1+a.rnd.IntN(9)
			account := func(i int) string { return fmt.Sprint(key, ":", i) }
			if a.rnd.IntN(3) == 0 {
				return call{key: key, op: "balances", reads: true,
					ask: transaction([]any{"INCRBY", account(0), 0},
						[]any{"INCRBY", account(1), 0}, []any{"INCRBY", account(2), 0})}
			}
			return call{key: key, op: "transfer",
				args: []string{fmt.Sprint(from), fmt.Sprint(to), fmt.Sprint(sum)},
				ask: transaction([]any{"DECRBY", account(from), sum},
					[]any{"INCRBY", account(to), sum})}
		},
	}
}

// transaction runs commands in MULTI.
func transaction(commands ...[]any) func(context.Context, redis.UniversalClient) (any, error) {
	return func(ctx context.Context, c redis.UniversalClient) (any, error) {
		cmds, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			for _, words := range commands {
				p.Do(ctx, words...)
			}
			return nil
		})
		if err != nil && err != redis.Nil {
			return nil, err
		}
		var replies []any
		for _, cmd := range cmds {
			v, err := cmd.(*redis.Cmd).Result()
			if err != nil && err != redis.Nil {
				return nil, err
			}
			replies = append(replies, v)
		}
		return replies, nil
	}
}

// errLost is a transaction that WATCH ended: it has not run.
var errLost = errors.New("lost to another client")

// watches increments a number by what was read under WATCH.
func watches(*work) player {
	return &keyed[number]{
		model: model[number]{step: func(s number, e *event) (number, string) {
			if e.Op == "add" {
				return number{true, s.n + 1}, s.String()
			}
			return s, s.String()
		}},
		next: func(a *actor, key string) call {
			if a.rnd.IntN(3) == 0 {
				return call{key: key, op: "get", reads: true, ask: command("GET", key)}
			}
			return call{key: key, op: "add", ask: func(ctx context.Context,
				c redis.UniversalClient) (any, error) {
				return addWatched(ctx, c, key)
			}}
		},
	}
}

// notRun is an error before anything was written.
type notRun struct{ error }

func addWatched(ctx context.Context, c redis.UniversalClient, key string) (any, error) {
	var seen any
	sent := false
	err := c.Watch(ctx, func(tx *redis.Tx) error {
		v, err := tx.Do(ctx, "GET", key).Result()
		if err != nil && err != redis.Nil {
			return err
		}
		seen = v
		n, _ := strconv.ParseInt(text(v), 10, 64)
		sent = true
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			return p.Set(ctx, key, n+1, 0).Err()
		})
		return err
	}, key)
	switch {
	case err == nil:
		return seen, nil
	case errors.Is(err, redis.TxFailedErr):
		return nil, notRun{errLost}
	case !sent:
		return nil, notRun{err}
	}
	return nil, err
}

// fixed is a window of INCREX.
type fixed struct {
	n     int64
	until time.Duration
}

const (
	fixedLimit  = 5
	fixedWindow = 200 * time.Millisecond
)

// increx counts calls in windows that end by themselves: it lets no more than a limit through, and
// no window ends early.
func increx(*work) player {
	return &keyed[fixed]{
		model: model[fixed]{
			step: func(s fixed, e *event) (fixed, string) {
				switch {
				case s.n == 0:
					s = fixed{1, e.Call + fixedWindow}
				case s.n == fixedLimit:
					return s, fmt.Sprintf("[%d 0]", s.n)
				default:
					s.n++
				}
				return s, fmt.Sprintf("[%d 1]", s.n)
			},
			lease: func(s fixed) (fixed, time.Duration, bool) { return fixed{}, s.until, s.n > 0 },
		},
		next: func(a *actor, key string) call {
			return call{key: key, op: "increx", ask: command("INCREX", key, "BYINT", 1, "UBOUND",
				fixedLimit, "PX", fixedWindow.Milliseconds(), "ENX")}
		},
	}
}
