// Data that TestDifferential adds at the start of half of its rounds, and sometimes later, so that
// random calls find something to work on.

package differential

import "github.com/coordd/coordd/commands/commandtest"

// stock are calls that create one value of each kind. Tokens are replaced as in other calls.
var stock = [][]string{
	{"FUNCTION", "LOAD", "REPLACE", callingLibrary},
	{"FUNCTION", "LOAD", "REPLACE",
		"#!lua name=five\nredis.register_function{function_name='f6', flags={'no-writes'}, " +
			"callback=function(keys, args) return {keys, args} end}"},
	{"RPUSH", "l1", "a", "b", "c", "1", "m1", "m2", "a"},
	{"RPUSH", "l2", "3", "1", "2", "17", "-5"},
	{"SADD", "s1", "m1", "m2", "m3", "a", "b"},
	{"SADD", "s2", "1", "2", "3", "17", "-5"},
	{"HSET", "h1", "m1", "1", "m2", "3.5", "a", "v", "b", ""},
	{"ZADD", "z1", "1", "m1", "2", "m2", "3.25", "m3", "-inf", "a"},
	{"ZADD", "z2", "0", "m1", "0", "m2", "0", "a", "0", "b", "0", ""},
	{"SETBIT", "k1", "17", "1"},
	{"SET", "k2", "10"},
	{"MSET", "w_1", "3", "w_2", "1", "w_a", "x"},
	{"XGROUP", "CREATE", "x1", "g1", "0", "MKSTREAM"},
	{"XGROUP", "CREATE", "x1", "g2", "$", "MKSTREAM"},
	{"XGROUP", "CREATE", "x2", "g1", "0", "MKSTREAM", "ENTRIESREAD", "3"},
	{"XADD", "x1", nextToken, "m1", "v", "a", "1"},
	{"XADD", "x1", nextToken, "m1", "w"},
	{"XADD", "x1", nextToken, "b", ""},
	{"XADD", "x2", nextToken, "m1", "v"},
	{"XADD", "x2", nextToken, "m2", "v"},
	{"XREADGROUP", "GROUP", "g1", "c1", "COUNT", "2", "STREAMS", "x1", "x2", ">", ">"},
	{"XREADGROUP", "GROUP", "g1", "c2", "STREAMS", "x1", ">"},
}

// stocked is a call of stock.
func (d *differential) stocked(i int) [][]byte { return d.filled(commandtest.Args(stock[i]...)) }
