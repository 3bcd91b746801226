// The comparison of all data at the end of a round of TestDifferential.

package differential

import (
	"github.com/coordd/coordd/commands/commandtest"
)

// compareData compares all data of both servers: every key with its type, TTL and content, and the
// functions and scripts.
func (d *differential) compareData() {
	for db := range databasesUsed {
		for _, key := range d.both(db, "KEYS", "*").Elems {
			if d.failure != "" {
				return
			}
			kind := d.both(db, "TYPE", key.Text)
			d.both(db, "PTTL", key.Text)
			for _, call := range contents[kind.Text] {
				words := append([]string{call[0], key.Text}, call[1:]...)
				if call[0] == "XINFO" {
					words = []string{"XINFO", "STREAM", key.Text, "FULL", "COUNT", "0"}
				}
				d.both(db, words...)
			}
		}
	}
	d.both(0, "FUNCTION", "LIST", "WITHCODE")
	d.both(0, append([]string{"SCRIPT", "EXISTS"}, differentialSHAs...)...)
}

// contents are the calls that show the whole value of a type.
var contents = map[string][][]string{
	"string": {{"GET"}},
	"list":   {{"LRANGE", "0", "-1"}},
	"set":    {{"SMEMBERS"}},
	"hash":   {{"HGETALL"}},
	"zset":   {{"ZRANGE", "0", "-1", "WITHSCORES"}},
	"stream": {{"XRANGE", "-", "+"}, {"XINFO"}},
}

// both makes a call on both servers, compares the replies and returns ours.
func (d *differential) both(db int, words ...string) commandtest.Value {
	q := request{db: db, calls: [][][]byte{commandtest.Args(words...)}}
	if _, ok := d.send(q); !ok {
		d.Fatalf("%v cannot be compared", words)
	}
	got, err := commandtest.Parse(d.pending[0].got)
	if err != nil {
		d.Fatal(err)
	}
	d.receive()
	return got
}
