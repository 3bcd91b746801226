// Calls of commands newer than Redis 7.0. The real server runs a script instead that does what the
// command's documentation says, as long as no field of a hash gets a TTL.

package differential

import (
	"slices"
	"strings"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// Each script does what a newer command does with KEYS[1]. Its model makes ARGV.
const (
	hgetdelScript = "local out = {} for i, f in ipairs(ARGV) do local v = redis.pcall('hget', " +
		"KEYS[1], f) if type(v) == 'table' then return v end " +
		"redis.call('hdel', KEYS[1], f) out[i] = v end return out"
	hgetexScript = "local out = {} for i, f in ipairs(ARGV) do local v = redis.pcall('hget', " +
		"KEYS[1], f) if type(v) == 'table' then return v end out[i] = v end return out"
	httlScript = "local out = {} for i, f in ipairs(ARGV) do local n = redis.pcall('hexists', " +
		"KEYS[1], f) if type(n) == 'table' then return n end out[i] = n - 2 end return out"
	hsetexScript = "local found, n = 0, 0 for i = 2, #ARGV, 2 do local e = " +
		"redis.pcall('hexists', KEYS[1], ARGV[i]) if type(e) == 'table' then return e end " +
		"found, n = found + e, n + 1 end if ARGV[1] == 'fnx' and found > 0 or ARGV[1] == 'fxx' " +
		"and found < n then return 0 end " +
		"redis.call('hset', KEYS[1], unpack(ARGV, 2)) return 1"
	delexScript = "if not ARGV[1] then return redis.call('del', KEYS[1]) end local v = " +
		"redis.pcall('get', KEYS[1]) if type(v) == 'table' then return ARGV[3] and {err = " +
		"ARGV[3]} or v end " +
		"if v and (v == ARGV[2]) == (ARGV[1] == 'ifeq') then return redis.call('del', KEYS[1]) " +
		"end return 0"
	setScript = "local v = redis.pcall('get', KEYS[1]) if type(v) == 'table' then return v end " +
		"if (v == ARGV[3]) ~= (ARGV[2] == 'ifeq') then return ARGV[4] == 'get' and v end return " +
		"redis.pcall('set', KEYS[1], ARGV[1], unpack(ARGV, 5))"
)

// model makes the arguments of a script from those that follow the key in a call. ok is false for
// calls that it does not cover.
type model struct {
	script string
	args   func(rest []string) (args []string, ok bool)
}

// newerModels are the models by command; SET's is for calls that compare.
var newerModels = map[string]model{
	"hgetdel": {hgetdelScript, fieldsModel}, "hgetex": {hgetexScript, fieldsModel},
	"hsetex": {hsetexScript, hsetexModel},
	"httl":   {httlScript, fieldsModel}, "hpttl": {httlScript, fieldsModel},
	"hexpiretime": {httlScript, fieldsModel}, "hpexpiretime": {httlScript, fieldsModel},
	"hpersist": {httlScript, fieldsModel},
	"delex":    {delexScript, delexModel},
	"delifeq": {delexScript, func(rest []string) ([]string, bool) {
		return append([]string{"ifeq"}, rest...), len(rest) == 1
	}},
	"set": {setScript, setModel},
}

// fieldsModel is for FIELDS, their number, and so many names.
func fieldsModel(rest []string) (names []string, ok bool) {
	if len(rest) < 3 || !strings.EqualFold(rest[0], "fields") {
		return nil, false
	}
	n, ok := commands.ParseInt([]byte(rest[1]))
	return rest[2:], ok && n == int64(len(rest)-2)
}

// hsetexModel is for FNX, FXX or nothing, FIELDS, their number, and so many pairs.
func hsetexModel(rest []string) (args []string, ok bool) {
	condition := ""
	if len(rest) > 0 && (strings.EqualFold(rest[0], "fnx") || strings.EqualFold(rest[0], "fxx")) {
		condition, rest = strings.ToLower(rest[0]), rest[1:]
	}
	if len(rest) < 4 || len(rest)%2 != 0 || !strings.EqualFold(rest[0], "fields") {
		return nil, false
	}
	n, ok := commands.ParseInt([]byte(rest[1]))
	return append([]string{condition}, rest[2:]...), ok && n == int64(len(rest)-2)/2
}

// delexModel is for no condition, IFEQ or IFNE.
func delexModel(rest []string) (args []string, ok bool) {
	if len(rest) == 0 {
		return nil, true
	}
	word := strings.ToLower(rest[0])
	return append(append([]string{word}, rest[1:]...),
			"ERR Key should be of string type if conditions are specified"), len(rest) == 2 &&
			(word == "ifeq" || word == "ifne")
}

// setModel is for a value, IFEQ or IFNE once, GET, and one of KEEPTTL, EX and PX with a long TTL.
func setModel(rest []string) (args []string, ok bool) {
	if len(rest) < 3 {
		return nil, false
	}
	value, condition, operand, get := rest[0], "", "", ""
	var options []string
	ttl := false
	for i := 1; i < len(rest); i++ {
		word := strings.ToLower(rest[i])
		switch {
		case (word == "ifeq" || word == "ifne") && condition == "" && i+1 < len(rest):
			condition, operand = word, rest[i+1]
			i++
		case word == "get" && get == "":
			get, options = word, append(options, word)
		case word == "keepttl" && !ttl:
			ttl, options = true, append(options, word)
		case (word == "ex" || word == "px") && !ttl && i+1 < len(rest):
			n, ok := commands.ParseInt([]byte(rest[i+1]))
			if !ok || n < 1_000_000 || n > 100_000_000_000 {
				return nil, false
			}
			ttl, options = true, append(options, word, rest[i+1])
			i++
		default:
			return nil, false
		}
	}
	return append([]string{value, condition, operand, get}, options...), condition != ""
}

// comparing reports whether a call is of SET with a comparison.
func comparing(call [][]byte) bool {
	return isCommand(call, "set") && (hasWord(call, "ifeq") || hasWord(call, "ifne"))
}

// newer reports whether the real server lacks a call's command, or its option.
func newer(call [][]byte) bool {
	_, known := newerModels[strings.ToLower(string(call[0]))]
	return known && (!isCommand(call, "set") || comparing(call))
}

// modelled is the call for the real server in place of a newer one, or nil.
func modelled(call [][]byte) [][]byte {
	if scripted(call) || !newer(call) || len(call) < 2 {
		return nil
	}
	var rest []string
	for _, arg := range call[2:] {
		rest = append(rest, string(arg))
	}
	m := newerModels[strings.ToLower(string(call[0]))]
	args, ok := m.args(rest)
	if !ok {
		return nil
	}
	return slices.Concat(commandtest.Args("EVAL", m.script, "1"), call[1:2],
		commandtest.Args(args...))
}
