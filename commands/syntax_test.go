package commands

import (
	"fmt"
	"strings"
	"testing"
)

// show formats arguments briefly: "?" optional, "+" multiple, "*" with its token each time.
func show(args []Arg) string {
	var all []string
	for _, a := range args {
		s := a.Token
		switch a.Type {
		case ArgToken:
		case ArgOneOf:
			s += "<" + strings.ReplaceAll(show(a.Args), " ", "|") + ">"
		case ArgBlock:
			s += "(" + show(a.Args) + ")"
		default:
			s = strings.TrimPrefix(s+":"+a.Name, ":")
		}
		for _, f := range []struct {
			on   bool
			mark string
		}{{a.Optional, "?"}, {a.Multiple, "+"}, {a.MultipleToken, "*"}} {
			if f.on {
				s += f.mark
			}
		}
		all = append(all, s)
	}
	return strings.Join(all, " ")
}

func TestParseSyntax(t *testing.T) {
	for _, c := range []struct{ syntax, want string }{
		{"", ""},
		{"key value", "key value"},
		{"key [key ...]", "key+"},
		{"[key [key ...]]", "key?+"},
		{"key score member [score member ...]", "key (score member)+"},
		{"[NX | XX] [CH]", "<NX|XX>? CH?"},
		{"[EX seconds | KEEPTTL]", "<EX:seconds|KEEPTTL>?"},
		{"[LIMIT offset count]", "LIMIT(offset count)?"},
		{"[COUNT count [ANY]]", "(COUNT:count ANY?)?"},
		{"[GET pattern [GET pattern ...]]", "GET:pattern?+*"},
		{"[WEIGHTS weight [weight ...]] [AGGREGATE <SUM | MIN>]",
			"WEIGHTS:weight?+ AGGREGATE<SUM|MIN>?"},
		{"[BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
			"BLOCK:milliseconds? STREAMS(key+ id+)"},
		{"<MAXLEN | MINID> [= | ~] threshold", "<MAXLEN|MINID> <=|~>? threshold"},
		{"<* | id> field", "<*|id> field"},
		{`key "a|b" "x"`, "key a|b x"},
		{"key [GET offset | [OVERFLOW <WRAP | SAT>] <SET value | INCRBY n> [GET offset | " +
			"[OVERFLOW <WRAP | SAT>] <SET value | INCRBY n> ...]]",
			"key <GET:offset|(OVERFLOW<WRAP|SAT>?|<SET:value|INCRBY:n>)>?+"},
		{"A | B c", "<A|B:c>"},
		{"<a | b> [<a | b> ...]", "<a|b>+"},
	} {
		args, err := ParseSyntax(c.syntax)
		if got := show(args); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.syntax, got, err, c.want)
		}
	}
	for _, wrong := range []string{"[a", "a]", "<a]", "[a | ]"} {
		if args, err := ParseSyntax(wrong); err == nil {
			t.Errorf("%s: %s, want an error", wrong, fmt.Sprint(args))
		}
	}
}
