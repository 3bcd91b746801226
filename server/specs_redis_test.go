// Compares COMMAND and its documentation with a real redis-server, for every command that both
// have.

package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/commandtest"
)

// described is a command as COMMAND describes it, part by part.
type described map[string]string

// bothServers connects to a real redis-server and to our own, with RESP3.
func bothServers(t *testing.T) (redis, own commandtest.Target) {
	t.Helper()
	real := commandtest.DialRedis(t)
	mine := start(t, nil).dial(t)
	ask(t, real, "HELLO 3")
	ask(t, mine, "HELLO 3")
	return real, mine
}

func ask(t *testing.T, c commandtest.Target, line string) commandtest.Value {
	t.Helper()
	raw, err := c.Do(commandtest.Args(strings.Fields(line)...))
	if err != nil {
		t.Fatal(err)
	}
	v, err := commandtest.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// describe asks a server for all its commands.
func describe(t *testing.T, c commandtest.Target) map[string]described {
	t.Helper()
	v := ask(t, c, "COMMAND")
	all := map[string]described{}
	for i := range v.Elems {
		addDescribed(all, &v.Elems[i])
	}
	return all
}

func addDescribed(all map[string]described, v *commandtest.Value) {
	keys := v.Elems[8]
	for i := range keys.Elems {
		part := &keys.Elems[i]
		if part.Elems[0].Text == "notes" {
			part.Elems = part.Elems[2:]
		}
	}
	all[v.Elems[0].Text] = described{
		"arity": v.Elems[1].String(), "flags": sortedText(v.Elems[2]),
		"keys":       fmt.Sprint(v.Elems[3:6]),
		"categories": sortedText(v.Elems[6]), "key specs": keys.String(),
	}
	for i := range v.Elems[9].Elems {
		addDescribed(all, &v.Elems[9].Elems[i])
	}
}

func sortedText(v commandtest.Value) string {
	words := make([]string, len(v.Elems))
	for i := range v.Elems {
		words[i] = v.Elems[i].Text
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// specDiffers names what differs from Redis 7.0.15, and why.
var specDiffers = map[string]string{"zrank arity": "WITHSCORE of 7.2",
	"zrevrank arity": "WITHSCORE of 7.2", "exec arity": "conditions of Valkey 9.2",
	"exec flags": "the same", "exec key specs": "the same",
	"memory|purge categories": "it is for administrators"}

func TestCommandIsThatOfRedis(t *testing.T) {
	c, mine := bothServers(t)
	redis, own := describe(t, c), describe(t, mine)
	compared := 0
	for name, want := range redis {
		have := own[name]
		if have == nil {
			continue
		}
		compared++
		for part := range want {
			if have[part] != want[part] && specDiffers[name+" "+part] == "" {
				t.Errorf("%s: %s\n\tis    %s\n\tredis %s", name, part, have[part], want[part])
			}
		}
	}
	if compared < 150 {
		t.Errorf("only %d commands are in both", compared)
	}
}

// docsDiffer names the commands whose arguments in COMMAND DOCS are built otherwise than Redis
// 7.0.15 has them, and why.
var docsDiffer = map[string]string{
	"set": "conditions of Redis 8.4", "xadd": "references of 8.2, IDMP of 8.6",
	"xread": "MAXCOUNT and MAXSIZE of 8.10", "xreadgroup": "the same, CLAIM of 8.4",
	"hscan": "NOVALUES of 7.4",
	"zrank": "WITHSCORE of 7.2", "zrevrank": "WITHSCORE of 7.2",
	"zscan": "NOSCORES, by NOVALUES's example", "client|kill": "MAXAGE of 7.4",
	"debug": "Redis tells none", "command|getkeys": "Redis tells none",
	"command|getkeysandflags": "Redis tells none",
	"bitop":                   "the operations are told apart",
	"sort":                    "only Redis's files know that BY and GET name keys",
	"client|list":             "a block of one argument is that argument", "config|get": "the same",
	"psubscribe": "the same", "exec": "conditions of Valkey 9.2",
	"failover":  "the notation does not tell what a word takes besides values",
	"geosearch": "the same", "geosearchstore": "the same",
	"xinfo|stream": "the same", "xtrim": "a group without brackets is none",
}

// argShape writes what arguments are built of: words, keys with their parts, other values as v.
func argShape(v commandtest.Value) string {
	var all []string
	for i := range v.Elems {
		field := map[string]commandtest.Value{}
		for pair := v.Elems[i].Elems; len(pair) > 1; pair = pair[2:] {
			field[pair[0].Text] = pair[1]
		}
		s := field["token"].Text
		switch kind := field["type"].Text; kind {
		case "pure-token":
		case "oneof", "block":
			s += kind + "(" + argShape(field["arguments"]) + ")"
		case "key":
			s += " key" + field["key_spec_index"].Text
		default:
			s += " v"
		}
		all = append(all, s+"{"+sortedText(field["flags"])+"}")
	}
	return strings.Join(all, " ")
}

// argShapes asks a server for the documentation of all its commands.
func argShapes(t *testing.T, c commandtest.Target) map[string]string {
	t.Helper()
	shapes := map[string]string{}
	var walk func(docs commandtest.Value)
	walk = func(docs commandtest.Value) {
		for pair := docs.Elems; len(pair) > 1; pair = pair[2:] {
			shapes[pair[0].Text] = ""
			for field := pair[1].Elems; len(field) > 1; field = field[2:] {
				switch field[0].Text {
				case "arguments":
					shapes[pair[0].Text] = argShape(field[1])
				case "subcommands":
					walk(field[1])
				}
			}
		}
	}
	walk(ask(t, c, "COMMAND DOCS"))
	return shapes
}

func TestDocsAreBuiltLikeRedis(t *testing.T) {
	redis, own := bothServers(t)
	want, have := argShapes(t, redis), argShapes(t, own)
	compared := 0
	for name, shape := range want {
		mine, both := have[name]
		if !both {
			continue
		}
		compared++
		if why := docsDiffer[name]; why != "" {
			if mine == shape {
				t.Errorf("%s is as on Redis, and said to differ: %s", name, why)
			}
			continue
		}
		if mine != shape {
			t.Errorf("%s\n\tis    %s\n\tredis %s", name, mine, shape)
		}
	}
	if compared < 200 {
		t.Errorf("only %d commands are in both", compared)
	}
}
