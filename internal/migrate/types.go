// How values of each type are read, and which commands recreate them.

package migrate

import (
	"fmt"
	"slices"
)

// Limits of a command and a piece. A larger element is sent alone.
const (
	pieceBytes    = 1 << 20
	pieceElements = 512
)

// theKey is the placeholder in a command for the name of the key that is written.
var theKey = new(int)

// named replaces theKey with a name.
func named(cmd []any, name string) []any {
	cmd = slices.Clone(cmd)
	for i, w := range cmd {
		if w == any(theKey) {
			cmd[i] = name
		}
	}
	return cmd
}

// valueType is how values of a type are copied.
type valueType struct {
	// the command that reads a small value; nil: it is always read in pieces
	whole func(key string) []any
	// the commands that write elements as whole, or a scan, returns them
	load   func(elements []any) [][]any
	length string // the command that counts elements
	// the command that reads elements by cursor; empty: there is none
	scan string
}

var types = map[string]valueType{
	"string": {whole: func(k string) []any { return []any{"GET", k} }},
	"hash": {
		whole: func(k string) []any { return []any{"HGETALL", k} },
		load:  loader("HSET", 2, false), length: "HLEN", scan: "HSCAN",
	},
	"list": {
		whole: func(k string) []any { return []any{"LRANGE", k, 0, -1} },
		load:  loader("RPUSH", 1, false), length: "LLEN",
	},
	"set": {
		whole: func(k string) []any { return []any{"SMEMBERS", k} },
		load:  loader("SADD", 1, false), length: "SCARD", scan: "SSCAN",
	},
	"zset": {
		whole: func(k string) []any { return []any{"ZRANGE", k, 0, -1, "WITHSCORES"} },
		load:  loader("ZADD", 2, true), length: "ZCARD", scan: "ZSCAN",
	},
	"stream": {},
}

// loader returns the function that appends elements of width words each to a command, in as few
// commands as the limits allow. swapped: the command takes each pair in reverse order.
func loader(command string, width int, swapped bool) func([]any) [][]any {
	return func(elements []any) [][]any {
		var cmds [][]any
		var cmd []any
		bytes := 0
		for e := range slices.Chunk(elements, width) {
			size := 0
			for _, w := range e {
				size += wordLen(w)
			}
			if cmd == nil || bytes+size > pieceBytes || len(cmd) > pieceElements*width {
				if cmd != nil {
					cmds = append(cmds, cmd)
				}
				cmd, bytes = []any{command, theKey}, 0
			}
			bytes += size
			if swapped {
				cmd = append(cmd, e[1], e[0])
			} else {
				cmd = append(cmd, e...)
			}
		}
		return append(cmds, cmd)
	}
}

// wordLen returns the length of a word, a string in RESP2.
func wordLen(w any) int {
	if s, ok := w.(string); ok {
		return len(s)
	}
	return len(fmt.Sprint(w))
}
