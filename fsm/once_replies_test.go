package fsm

import (
	"fmt"
	"testing"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/commands/commandtest"
)

// Whatever a script replies is read back from a snapshot, and gets a repeat the same.
func TestRepliesOfAllTypesAreReadBack(t *testing.T) {
	for i, returns := range []string{
		`{ok='a\nb'}`, `{ok=''}`, `{err='E a\r\nb'}`, `{err=''}`, `{ok='a\r'}`, `{ok='\n'}`,
		`{big_number='12\n3'}`, `{big_number='12\r\n3'}`, `{big_number=''}`, `{double=1/0}`,
		`{double=0/0}`, `{double=-0.0}`, `{map={}}`, `{map={a={set={b=true}}}}`, `{set={}}`,
		`{verbatim_string={format='txt', string='a\r\nb'}}`,
		`{verbatim_string={format='t\n', string=''}}`, `nil`, `{}`, `''`, `'\r\n'`, `true`, `false`,
		`{1, false, {2, {}}, nil, 3}`, `redis.call('GET', 'none')`, `redis.call('HGETALL', 'none')`,
		`redis.pcall('NONE\n')`, `redis.call('LOCK.ACQUIRE', 'l', 'o', 'PX', '9')`,
		`(function() local x = {} for i = 1, 2000 do x = {x} end return x end)()`,
	} {
		for proto := 2; proto <= 3; proto++ {
			o := newOnceMachines(t)
			script := fmt.Sprintf(`redis.setresp(%d) redis.call('INCR', 'n') return %s`, proto, returns)
			q := &commands.Request{Proto: proto, Cmds: [][][]byte{
				commandtest.Args("IDEMPOTENT", fmt.Sprint("r", i), "EVAL", script, "0")}}
			first := o.do(q)
			if again := o.do(q); again != first {
				t.Errorf("%s: %.80q, then %.80q", returns, first, again)
			}
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Errorf("%s by protocol %d, %.60q: %v", returns, proto, first, p)
					}
				}()
				o.silent = restored(t, o.silent)
			}()
			if got := o.do(q); got != first {
				t.Errorf("%s: %.80q, restored %.80q", returns, first, got)
			}
			q.Proto = 5 - proto
			o.do(q)
		}
	}
}
