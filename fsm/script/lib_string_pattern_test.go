// Patterns compared with Redis's: known cases, errors, and random ones. The budget stops a pattern
// bomb.

package script

import (
	"fmt"
	"github.com/coordd/coordd/internal/tests/seeds"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestPatternsLikeRedis(t *testing.T) {
	compare(t, []string{
		`return ('hello'):find('l'), ('hello'):find('l', 4), ('hello'):find('xyz'), ('hello'):find(''), ('hello'):find('', 10), ('hello'):find('', 6)`,
		`return ('a.b'):find('.', 1, true), ('a.b'):find('%.'), ('a+b'):find('+', 1, true), ('abc'):find('b', -1), ('abc'):find('b', -2), ('a\0b'):find('\0')`,
		`return ('hello world'):match('o w'), ('key=val'):match('(%w+)=(%w+)'), ('abc'):match('()b()'), ('abc'):match('x'), ('  x '):match('^%s*(.-)%s*$')`,
		`return ('abc'):match('^b'), ('abc'):match('b', 2), ('abc'):match('^b', 2), ('abc'):match('c$'), ('a$b'):match('a$b'), ('a^b'):match('a^b'), ('abc'):match('.-'), ('abc'):match('a-')`,
		`return ('aaa'):match('a*'), ('aaa'):match('a+'), ('aaa'):match('a-$'), ('aaa'):match('a?'), ('baaa'):match('a?'), ('aaab'):match('a*ab'), ('x'):match('y*')`,
		`return ('[[x]]'):match('%b[]'), ('f(a(b)c)d'):match('%b()'), ('(('):match('%b()'), ('aXbXc'):match('%bXc'), ('xx'):match('%bxx')`,
		`return ('THE (quick) fox'):find('%f[%a]%a+%f[%A]'), ('hello'):match('%f[%z]'), ('abc def'):gsub('%f[%w]%w+', '<%0>')`,
		`return ('abcabc'):match('(abc)%1'), ('abcabd'):match('(abc)%1'), ('aa'):match('(a)%1'), ('""'):match([[(["'])(.-)%1]]), ('abc'):match('()%1')`,
		`return ('abc'):match('[a-c]+'), ('a-c'):match('[a%-c]+'), ('a-c'):match('[-ac]+'), (']'):match('[]]'), ('a]'):match('[^]]'), ('^'):match('[%^]'), ('a^'):match('[a^]+')`,
		`return ('abc123'):match('%a+'), ('abc123'):match('%d+'), ('a_b c'):match('[%w_]+'), ('\1\2a'):match('%c+'), ('.,;a'):match('%p+'), ('aB'):match('%l'), ('aB'):match('%u'), ('xyzF0'):match('%x+')`,
		`return ('abc'):match('%A'), ('a1'):match('%D'), ('a b'):match('%S+'), ('a\0b'):match('%z'), ('a\0b'):match('%Z+'), ('a\0b'):match('a.b'), ('\200'):match('%a'), ('\200'):match('%A') == '\200'`,
		`return ('a.b'):match('a%.b'), ('a%b'):match('a%%b'), ('a@b'):match('a%@b'), ('aQb'):match('a%Qb'), ('x'):match('%x')`,
		`return ('x^y'):gsub('^x', 'z'), ('xxx'):gsub('^x', 'z'), ('x'):gsub('x*', '-'), ('abc'):gsub('x*', '-'), ('abc'):gsub('', '-'), (''):gsub('', '-'), (''):gsub('x', 'y')`,
		`return ('hello'):gsub('l', 'L'), ('hello'):gsub('l', 'L', 1), ('hello'):gsub('l', 'L', 0), ('hello'):gsub('l', 'L', -1), ('hello'):gsub('l', 'L', '1'), ('hello'):gsub('l', 'L', 1.9)`,
		`return ('abc'):gsub('%w', '%0%0'), ('abc'):gsub('(%w)(%w)', '%2%1'), ('abc'):gsub('%w', '%%'), ('abc'):gsub('%w', '%x'), ('abc'):gsub('b', '%'), ('abc'):gsub('b', '%1'), ('abc'):gsub('()', '%1')`,
		`return ('abc'):gsub('b', '%2')`, `return ('abc'):gsub('(b)', '%2')`,
		`return ('abc'):gsub('b', 5), ('abc'):gsub('b', 1.5), ('abc'):gsub('b', 1e15)`,
		`return ('abc'):gsub('%w', {a = 'x', b = true})`,
		`return ('abc'):gsub('%w', {a = 'x', b = false, c = 5})`,
		`return ('abc'):gsub('(%w)(%w)', {a = 'x'}), ('abc'):gsub('()', {[2] = 'two'})`,
		`return ('abc'):gsub('%w', function(c) return c:upper() end), ('abc'):gsub('%w', function() end), ('abc'):gsub('%w', function() return false end), ('abc'):gsub('(%w)(%w)', function(a, b) return b end)`,
		`return ('abc'):gsub('%w', function() return {} end)`,
		`return ('abc'):gsub('%w', function() return true end)`,
		`return ('abc'):gsub('%w', function() error('x') end)`,
		`return ('abc'):gsub('%w', function() error({1}) end)`,
		`return ('abc'):gsub('b')`, `return ('abc'):gsub('b', true)`,
		`return ('abc'):gsub('b', nil)`, `return ('abc'):gsub()`,
		`return string.gsub('a', 'b', 'c', 'd')`, `return string.gsub('a', 'b', 'c', {})`,
		`return string.gsub({}, 'b', true)`,
		`return ('abc'):gsub('%w', setmetatable({}, {__index = function(t, k) return k .. k end}))`,
		`return ('a b c'):gsub(' ', '\0'), ('a\0b'):gsub('%z', 'Z'), ('abc'):gsub('.', '\0%0')`,
		`local r = {} for w in ('one two  three'):gmatch('%a+') do r[#r + 1] = w end return r`,
		`local r = {} for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do r[k] = v end return r`,
		`local r = {} for p in ('abc'):gmatch('()') do r[#r + 1] = p end return r`,
		`local r = {} for p in ('abc'):gmatch('x*') do r[#r + 1] = p end return r`,
		`local r = {} for p in ('^a^a'):gmatch('^a') do r[#r + 1] = p end return r`,
		`return ('abc'):gmatch()`, `return string.gmatch('a')`, `return type(('a'):gmatch('%')), 1`,
		`for w in ('a'):gmatch('%') do end`, `for w in ('a'):gmatch('(a') do end`,
		`local f = ('a'):gmatch('a') return f(), f(), f()`,
		`return ('a'):match('%')`, `return ('a'):match('[a')`, `return ('a'):match('[')`,
		`return ('a'):match('[]')`, `return ('a'):match('[^]')`, `return ('a'):match('[%')`,
		`return ('a'):match('[%]')`, `return ('a'):match('[a-%]')`,
		`return ('a'):match('(a')`, `return ('a'):match('a)')`, `return ('a'):match(')')`,
		`return ('a'):match('(')`, `return ('a'):match('%1')`, `return ('a'):match('(%1)')`,
		`return ('a'):match('%0')`, `return ('a'):match('(a)%2')`,
		`return ('a'):match('%b')`, `return ('a'):match('%bx')`, `return ('a'):match('%f')`,
		`return ('a'):match('%fa')`, `return ('a'):match('%f[')`, `return ('a'):find('%')`,
		`return ('a'):find('[')`, `return ('b'):find('(a')`,
		`return ('a'):rep(40):match(('(a)'):rep(32))`,
		`return ('a'):rep(40):match(('(a)'):rep(33))`, `return ('a'):rep(40):find(('()'):rep(33))`,
		`return ('a\0b'):match('a\0b'), ('a\0b'):find('a\0b'), ('a\0b'):find('a\0.'), ('a\0b'):find('\0b', 1, true), ('ab'):match('a\0x'), ('a'):match('\0'), ('ab'):find('b\0(')`,
		`return ('abc'):find('b', 1, false), ('a.c'):find('.', 2, true), ('abc'):find('b', nil, true), ('abc'):find('b', 1, 'x'), ('abc'):find('c', 1e300), ('abc'):find('c', -1e300), ('abc'):find('a', 0/0)`,
		`return ('abc'):find()`, `return string.find('a')`, `return ('abc'):find('a', {})`,
		`return ('abc'):find({})`,
		`return string.find(123, 2), string.match(123, '%d'), string.gsub(123, 2, 9)`,
		`return ('abc'):match('a', 'x')`,
		`return ('x'):match('(x)(y?)()'), ('foo.bar'):match('^(.*)%.(.*)$'), ('/a/b/c'):match('([^/]*)$'), ('k:v:w'):match('^(.-):(.*)$')`,
		`return ('aab'):match('^(a-)(a*)b$'), ('aaa'):find('a-', 2), ('aaa'):find('^a-$'), ('a,b,,c'):gsub(',', ';', 2), ('abc'):gsub('.', {b = 'B'}, 2), ('x = 1'):match('^(%w+)%s*=%s*(%w+)$')`,
		`return string.rep('a', 150):match(string.rep('a?', 150) .. '$') ~= nil`,
		`return (('a'):rep(100) .. 'b'):match('.-b') ~= nil, ('[test]'):gsub('[%[%]]', ''), ('a-b'):gsub('[^%w]', '%%%0')`,
		`return ('a]b'):match('[%]]'), ('a-b'):match('[a-]+'), ('+-'):match('[+--]+'), ('x'):match('[a-]'), ('é'):match('[\128-\255]+') == 'é', ('a'):match('[%a-z]'), ('-'):match('[%a-z]'), ('z'):match('[%a-z]')`,
		`return ('abc'):gsub('b', '%0%0%0%9')`,
		`return ('hello'):gsub('', function() return '.' end, 3), ('hello'):gsub('l+', string.upper), ('hello'):gsub('(h)(e)', function(...) return select('#', ...) end)`,
	})
}

func TestRandomPatternsLikeRedis(t *testing.T) {
	redis := startRedis(t)
	rnd := rand.New(rand.NewPCG(seeds.Of(t), 0))
	pieces := []string{"a", "b", "c", ".", "%a", "%d", "%w", "%s", "%A", "[ab]", "[^a]", "[a-c]",
		"[%d_]", "(", ")", "()", "(a)", "(.-)", "(%w*)",
		"%1", "%2", "%b()", "%f[a]", "%f[%W]", "$", "^", "-", "*", "+", "?", "%%", "1", " ", "[]]",
		"[", "]", "%"}
	for range 120 {
		var code strings.Builder
		code.WriteString("local r = {} ")
		for range 10 {
			var pattern, subject string
			for range 1 + rnd.IntN(6) {
				pattern += pieces[rnd.IntN(len(pieces))]
			}
			for range rnd.IntN(12) {
				subject += string("aabbcc1 _()X"[rnd.IntN(12)])
			}
			call := []string{"find(%[1]q, %[2]q)", "match(%[1]q, %[2]q)",
				"gsub(%[1]q, %[2]q, '<%%0>')", "gsub(%[1]q, %[2]q, '%%1', 2)",
				"find(%[1]q, %[2]q, 3)",
				"gsub(%[1]q, %[2]q, {a = 1, ab = 2, b = 'x'})"}[rnd.IntN(6)]
			fmt.Fprintf(&code, "r[#r + 1] = {pcall(function() return string."+call+" end)} ",
				subject, pattern)
		}
		snippet := code.String() + "return r"
		redis.compare(t, snippet)
	}
}

func TestPatternBombStops(t *testing.T) {
	for _, code := range []string{
		`return string.find(string.rep('a', 10000), string.rep('a*', 30) .. 'b')`,
		`return string.match(string.rep('a', 10000), string.rep('(a-)', 20) .. 'b')`,
		`return string.gsub(string.rep('(', 100000), '%b()', '')`,
		`for w in string.gmatch(string.rep('a', 10000), '.-.-.-.-b') do end`,
		`return string.find(string.rep('a', 3000), '[' .. string.rep('b', 3000) .. ']')`,
	} {
		left := map[int64]bool{}
		for range 2 {
			L := boundedState(t, 2_000_000, 1<<24)
			err := doString(L, code)
			if err == nil || !strings.Contains(err.Error(), errScriptInstructions) {
				t.Errorf("%s: %v", code, err)
			}
			left[L.G.Budget.Instructions] = true
		}
		if len(left) != 1 {
			t.Errorf("%s: two runs ended at different counts: %v", code, left)
		}
	}
}

func TestPatternTooComplex(t *testing.T) {
	got := runHere(t, `return string.match('', string.rep('a?', 20000))`)
	if !strings.Contains(got, "pattern too complex") {
		// An optional item adds a level only where it matches, and these match nothing.
		got = runHere(t, `return string.match(string.rep('a', 20000), string.rep('a?', 20000))`)
	}
	if !strings.Contains(got, "pattern too complex") {
		t.Error(got)
	}
}
