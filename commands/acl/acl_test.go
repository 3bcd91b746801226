package acl

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coordd/commands/glob"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// testCatalog has a container, and a category that no command is in.
func testCatalog() *Catalog {
	return NewCatalog([]Command{
		{Name: "auth", Categories: CategoriesOf("fast", "connection"), Always: true},
		{Name: "config", Categories: CategoriesOf("slow"), Container: true},
		{Name: "config|get", Categories: CategoriesOf("slow", "admin", "dangerous")},
		{Name: "config|set", Categories: CategoriesOf("slow", "admin", "dangerous")},
		{Name: "flushall", Categories: CategoriesOf("keyspace", "write", "slow", "dangerous")},
		{Name: "get", Categories: CategoriesOf("read", "string", "fast")},
		{}, // unknown at this level
		{Name: "publish", Categories: CategoriesOf("pubsub", "fast")},
		{Name: "select", Categories: CategoriesOf("fast", "connection")},
		{Name: "set", Categories: CategoriesOf("write", "string", "slow")},
	})
}

func args(words []string) (args [][]byte) {
	for _, w := range words {
		args = append(args, []byte(w))
	}
	return args
}

func change(t testing.TB, s *Users, name string, rules ...string) *Users {
	t.Helper()
	s, _, err := s.Change([]byte(name), 7, args(rules))
	if err != nil {
		t.Fatalf("%.200q: %v", rules, err)
	}
	return s
}

func TestDefaultUserIsFull(t *testing.T) {
	s := New(testCatalog())
	u := s.Default()
	if !u.Full() || !u.On() || !u.NoPass() || u.Created() != 0 || s.Len() != 1 {
		t.Errorf("%v, full %v", u, u.Full())
	}
	if got := u.String(); got != "user default on nopass ~* &* +@all" {
		t.Error(got)
	}
	for _, less := range []string{"-get", "-config|get", "resetkeys", "resetchannels", "-@geo",
		"-@read", "-@all"} {
		full := change(t, s, DefaultUser, less).Default().Full()
		if want := less == "-@geo"; full != want {
			t.Errorf("after %s full is %v", less, full)
		}
	}
	if !change(t, s, DefaultUser, "-get", "+get").Default().Full() {
		t.Error("a right that came back is missing")
	}
}

// someUsers have all kinds of rules.
func someUsers(t *testing.T) *Users {
	s := New(testCatalog())
	for i, rules := range [][]string{
		{}, {"on", ">secret", "#" + Hash([]byte("other")), "skip-sanitize-payload"}, {"reset"},
		{"~a", "%R~b", "%W~c", `~"q`, "&ch*", "&", "~"}, {"+@all", "-@read", "-config|get"},
		{"+select|0", "+select|1", "+@string", "+config", "-config|set"},
		{"allkeys", "allchannels"},
		{"+get", "(+set ~a &b)", "(-@all)", "(+@all ~* &*)"},
		{`("~\"x" '~y"z' %R~\ +select|0)`, `("+select|'")`},
	} {
		s = change(t, s, string(rune('a'+i)), rules...)
	}
	return s
}

// What was encoded and read again is the same user.
func TestEncoding(t *testing.T) {
	s := someUsers(t)
	encoded := s.AppendTo(nil)
	restored, err := Restore(testCatalog(), encoded)
	if err != nil {
		t.Fatal(err)
	}
	if string(restored.AppendTo(nil)) != string(encoded) || restored.bytes != s.bytes {
		t.Errorf("%d bytes, restored %d, encoded %d", s.bytes, restored.bytes, len(encoded))
	}
	for i, u := range restored.All() {
		if have, want := u.String(), s.All()[i].String(); have != want || u.Full() !=
			s.All()[i].Full() || u.Created() != s.All()[i].Created() {
			t.Errorf("%s, want %s", have, want)
		}
	}
	for n := range encoded {
		if _, err := Restore(testCatalog(), encoded[:n]); err == nil {
			t.Errorf("%d of %d bytes are taken for users", n, len(encoded))
		}
	}
}

// state is all that is known of a user.
func (u *User) state() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n%s %d %t %d", u, u.name, u.created, u.full, u.bytes)
	for s := range u.all() {
		fmt.Fprintf(&text, "\n%+v", *s)
	}
	return text.String()
}

// same fails unless two sets of users are equal in everything.
func same(t *testing.T, what string, have, want *Users) {
	t.Helper()
	for i, u := range want.All() {
		if i >= have.Len() || have.All()[i].state() != u.state() {
			t.Fatalf("%s: %.2000s\nwant %.2000s", what, have.File(), want.File())
		}
	}
	if have.Len() != want.Len() || have.bytes != want.bytes ||
		string(have.AppendTo(nil)) != string(want.AppendTo(nil)) {
		t.Fatalf("%s: %d users of %d bytes, want %d of %d", what, have.Len(), have.bytes,
			want.Len(), want.bytes)
	}
}

// again returns the users after a restart or a file, or as they are. It fails unless all of them
// are the same.
func again(t *testing.T, users *Users, rnd *rand.Rand) *Users {
	t.Helper()
	restored, err := Restore(users.catalog, users.AppendTo(nil))
	if err != nil {
		t.Fatalf("%v: %.2000s", err, users.File())
	}
	same(t, "restored", restored, users)
	loaded, _, err := users.Replace("", users.File(), 0, maxTestWork)
	if err != nil {
		t.Fatalf("%v: %.2000s", err, users.File())
	}
	same(t, "loaded", loaded, users)
	return []*Users{users, restored, loaded}[rnd.IntN(3)]
}

// After every change the users of a snapshot and those of a file are the ones that were written.
func TestUsersComeBack(t *testing.T) {
	seed := seeds.Of(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	c := testCatalog()
	users, changes := New(c), 0
	for range 10_000 {
		rules := make([]string, 1+rnd.IntN(4))
		for i := range rules {
			rules[i] = randomRule(rnd, c)
		}
		if rnd.IntN(20) == 0 {
			rules[0] = "reset"
		}
		changed, _, err := users.Change([]byte(fmt.Sprint("u", rnd.IntN(2))), 7, args(rules))
		if err != nil {
			continue
		}
		changes++
		users = again(t, changed, rnd)
	}
	if changes < 1500 {
		t.Errorf("%d changes: too few", changes)
	}
}

// Rules that were overridden in part, and patterns that look like another rule.
func TestRulesThatAreKept(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for rules, want := range map[string]string{
		"+@string -@read +get|x -@read":       "+@string -@read",
		"+get|x -@read +get|x -@read":         "-@read",
		"+get|x -@write +get|y +get|X":        "+get|x -@write +get|y",
		"+get|x +@geo -get":                   "+@geo -get",
		"+select|x -config +@all":             "+@all",
		"%RW~* ~foo":                          "%RW~* ~foo",
		"%R~* %W~*":                           "%RW~*",
		"%R~* %W~* allkeys":                   "~*",
		"~* (%RW~* ~foo)":                     "~* (%RW~* ~foo)",
		`("~x)" ~y) ('~(' +get|x) ~z) ("~)")`: `~z) ("~x)" ~y) (~( +get|x) ("~)")`,
	} {
		users, _, err := New(testCatalog()).Change([]byte("u"), 7, args(strings.Split(rules, " ")))
		if err != nil {
			t.Errorf("%s: %v", rules, err)
			continue
		}
		again(t, users, rnd)
		_, have, _ := strings.Cut(string(users.File()), "user u off ")
		if have = strings.TrimSpace(have); have != want {
			t.Errorf("%s: %s is kept, want %s", rules, have, want)
		}
	}
}

// A file gives back the users that wrote it, who stay the same ones.
func TestFile(t *testing.T) {
	s := someUsers(t)
	loaded, _, err := s.Replace("f", s.File(), 9, maxTestWork)
	if err != nil {
		t.Fatal(err)
	}
	if have, want := string(loaded.AppendTo(nil)), string(s.AppendTo(nil)); have != want {
		t.Errorf("%q, want %q", have, want)
	}
	loaded, _, err = s.Replace("f", []byte("user new on\nuser a +get"), 9, maxTestWork)
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Len() != 3 || !loaded.Default().Full() || loaded.Get([]byte("a")).Created() != 7 ||
		loaded.Get([]byte("new")).Created() != 9 {
		t.Errorf("%v", loaded.All())
	}
}

// maxTestWork is commands.MaxRequestWork.
const maxTestWork = 10_000_000

func TestLimits(t *testing.T) {
	s := New(testCatalog())
	refused := func(want error, name string, rules ...string) {
		t.Helper()
		_, units, err := s.Change([]byte(name), 0, args(rules))
		if rule, ok := err.(*RuleError); ok {
			err = rule.Err
		}
		if err != want {
			t.Errorf("%v, want %q", err, want)
		}
		if units > maxTestWork/10 {
			t.Errorf("%v: %d units", want, units)
		}
		if err := s.CheckRules(args(rules)); (want == errRules) != (err == errRules) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	long := strings.Repeat("x", glob.MaxPattern)
	s = change(t, s, "a", "~"+long, "&"+long)
	refused(errPattern, "a", "~x"+long)
	refused(errPattern, "a", "&x"+long)
	refused(errName, "a b")
	refused(errNoName, "")
	refused(errUserBytes, strings.Repeat("x", maxUserBytes+1))

	// what is given at once, however it is cut
	s = change(t, s, "a", slices.Repeat([]string{"on"}, maxRules)...)
	refused(errRules, "a", slices.Repeat([]string{"on"}, maxRules+1)...)
	refused(errRules, "a", "("+strings.Repeat("+get ", maxRules)+"+get)")
	refused(errRules, "a", "("+strings.Repeat("x", maxGiven)+")")
	refused(errRules, "a", slices.Repeat([]string{strings.Repeat(" ", 9)}, maxRules/4)...)
	refused(errRules, "a", "("+strings.Repeat("x", 100<<20)+")")

	// what a user keeps
	few := maxUserBytes / selectorBytes
	s = change(t, s, "b", slices.Repeat([]string{"()"}, few-2)...)
	refused(errUserBytes, "b", "()", "()")
	refused(errUserBytes, "c", slices.Repeat([]string{"()"}, maxRules)...)
	refused(errUserBytes, "c", manyPatterns(maxRules)...)
	s = change(t, s, "b", append(manyPatterns(900), "clearselectors")...)
	refused(errUserBytes, "b", append(manyPatterns(900), manyFirstArgs(450)...)...)
}

func manyPatterns(n int) (rules []string) {
	for i := range n {
		rules = append(rules, fmt.Sprintf("~%03x", i))
	}
	return rules
}

func manyFirstArgs(n int) (rules []string) {
	for i := range n {
		rules = append(rules, fmt.Sprintf("+get|%d", i))
	}
	return rules
}

// The users of a file are bounded in all, and it is not read to its end to find that.
func TestLimitsOfAll(t *testing.T) {
	s := New(testCatalog())
	line := func(name int, rules ...string) string {
		return fmt.Sprintf("user u%d %s\n", name, strings.Join(rules, " "))
	}
	for what, c := range map[string]struct {
		line func(i int) string // of user i
		fits int
	}{
		"users": {func(i int) string { return line(i) }, 8000},
		"selectors": {func(i int) string {
			return line(i, slices.Repeat([]string{"()"}, 100)...)
		}, 80},
		"patterns": {func(i int) string { return line(i, manyPatterns(900)...) }, 65},
		"first arguments": {func(i int) string { return line(i, manyFirstArgs(450)...) },
			65},
		"bytes": {func(i int) string {
			return line(i, "&"+strings.Repeat(string(rune('a'+i%26)), glob.MaxPattern))
		}, 3600},
	} {
		var file strings.Builder
		for i := range c.fits {
			file.WriteString(c.line(i))
		}
		full, units, err := s.Replace("", []byte(file.String()), 0, maxTestWork)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		t.Logf("%s: %d units, %d bytes, a file of %d bytes", what, units, full.bytes,
			len(full.File()))
		if full.bytes < maxBytes*9/10 {
			t.Errorf("%s: only %d bytes", what, full.bytes)
		}
		if _, _, err := full.Replace("", full.File(), 0, maxTestWork); err != nil {
			t.Errorf("%s as a file: %v", what, err)
		}
		for i := range c.fits / 4 {
			file.WriteString(c.line(c.fits + i))
		}
		if _, _, err := s.Replace("", []byte(file.String()), 0, maxTestWork); err != errBytes {
			t.Errorf("%s: %v, want %q", what, err, errBytes)
		}
		for i := 0; err == nil && i < 1000; i++ {
			full, _, err = full.Change([]byte(fmt.Sprint("more", i)), 0, nil)
		}
		if err != errBytes {
			t.Errorf("more than %s: %v, want %q", what, err, errBytes)
		}
	}
	for what, c := range map[string]struct {
		file string
		want error
	}{
		"a large file":  {strings.Repeat("\n", MaxFile+1), errFile},
		"empty lines":   {strings.Repeat("\n", MaxFile), errWork},
		"no users":      {strings.Repeat("x\n", MaxFile/2), errWork},
		"one user":      {strings.Repeat(line(1, slices.Repeat([]string{"on"}, 2000)...), 99), nil},
		"errors":        {strings.Repeat("user a (\n", MaxFile/10), errWork},
		"one long line": {"user a " + strings.Repeat("on ", MaxFile/4), nil},
		"useless rules": {func() string {
			var file strings.Builder
			for i := range 1000 {
				file.WriteString(line(i, slices.Repeat([]string{"+get|1", "-get"}, 1000)...))
			}
			return file.String()
		}(), errWork},
	} {
		_, units, err := s.Replace("", []byte(c.file), 0, maxTestWork)
		if c.want != nil && err != c.want || err == nil {
			t.Errorf("%s: %.100v, want %v", what, err, c.want)
		}
		if units > maxTestWork*11/10 {
			t.Errorf("%s: %d units", what, units)
		}
	}
}

// Users that fill the limits in any way have a file that one request can load. Its work is that of
// its lines: one user, as large as can be, says what all of them take.
func TestFullFilesLoad(t *testing.T) {
	short := func(begin string) func(i int) string {
		return func(i int) string { return begin + strconv.FormatInt(int64(i), 36) }
	}
	long := func(begin, of string) func(i int) string {
		return func(i int) string {
			number := strconv.Itoa(i)
			return begin + number + strings.Repeat(of, glob.MaxPattern-len(number))
		}
	}
	var commands []string
	for _, c := range testCatalog().commands {
		if c.Name != "" {
			commands = append(commands, "+"+c.Name, "-"+c.Name)
		}
	}
	selectorOf := func(rule func(i int) string) func(n int) []string {
		return func(n int) []string {
			var words []string
			for i := range n {
				w := rule(i)
				if strings.ContainsAny(w, `"'`) {
					w = `"` + inQuotes.Replace(w) + `"`
				}
				words = append(words, w)
			}
			return []string{"(" + strings.Join(words, " ") + ")"}
		}
	}
	rootOf := func(rule func(i int) string) func(n int) []string {
		return func(n int) (rules []string) {
			for i := range n {
				rules = append(rules, rule(i))
			}
			return rules
		}
	}
	forms := map[string]func(n int) []string{
		"hashes": rootOf(func(i int) string {
			return "#" + Hash([]byte{byte(i), byte(i >> 8)})
		}),
		"selectors": rootOf(func(int) string { return "()" }),
		"selectors of patterns": rootOf(func(i int) string {
			return "(" + strings.Join(manyPatterns(i%9), " ") + ")"
		}),
		"selectors of a long pattern": rootOf(func(i int) string {
			return "(" + long("~", "\x01")(i) + ")"
		}),
	}
	for name, rule := range map[string]func(i int) string{
		"keys": short("~"), "channels": short("&"), "reads": short("%R~"),
		"first arguments": short("+get|"),
		"commands":        func(i int) string { return commands[i%len(commands)] },
		"long keys":       long("~", "x"), "long channels": long("&", "x"),
		"what looks like a space": long("~", "\x01"), "quotes": long("~", `"`),
		"parentheses": long("&", ")"),
	} {
		forms[name], forms["a selector of "+name] = rootOf(rule), selectorOf(rule)
	}
	for name, rules := range forms {
		var one *Users
		most := 0 // rules that a user can have, to eight
		for step := maxRules / 2; step >= 8; step /= 2 {
			users, _, err := New(testCatalog()).Change([]byte("u"), 7, args(rules(most+step)))
			if err == nil {
				one, most = users, most+step
			}
		}
		if most == 0 {
			t.Errorf("%s: no user can have them", name)
			continue
		}
		file := one.File()
		loaded, units, err := New(testCatalog()).Replace("", file, 0, maxTestWork)
		if err != nil || !bytes.Equal(loaded.File(), file) {
			t.Errorf("%s: the file of one user: %v", name, err)
			continue
		}
		// the users of this form, beside a small one
		all := (maxBytes/one.Get([]byte("u")).bytes + 1) * units
		if t.Logf("%s: %d rules take %d units, all users %d", name, most, units,
			all); all > maxTestWork {
			t.Errorf("%s: a file of all users takes %d units", name, all)
		}
	}
}

func TestPasswordsAreHashed(t *testing.T) {
	rules, err := HashRules([][]byte{[]byte("on"), []byte(">a"), []byte("<b"), {}, []byte("~>c")})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"on", "#" + Hash([]byte("a")), "!" + Hash([]byte("b")), "", "~>c"}
	for i, r := range rules {
		if string(r) != want[i] {
			t.Errorf("%s, want %s", r, want[i])
		}
	}
	many := slices.Repeat([][]byte{[]byte(">x")}, maxRules+1)
	if _, err := HashRules(many[1:]); err != nil {
		t.Error(err)
	}
	if n := testing.AllocsPerRun(1, func() { _, err = HashRules(many) }); err != errRules || n > 0 {
		t.Errorf("too many: %v after %v allocations", err, n)
	}
}

func TestRulesThatNobodyCanGet(t *testing.T) {
	s := New(testCatalog())
	for rule, ok := range map[string]bool{
		"on": true, "<nobody": true, "~a": true, "+get|1": true, "(+get ~a)": true, "": true,
		"secret": false, "(+get >secret)": false, "+nothing": false, "#1": false, "(+get": false,
	} {
		err := s.CheckRules([][]byte{[]byte("~*"), []byte("~b"), []byte(rule)})
		if (err == nil) != ok {
			t.Errorf("%q: %v", rule, err)
		}
	}
}

// What a later level adds to a category is allowed to those who have the category.
func TestCatalogGrows(t *testing.T) {
	old := testCatalog()
	grown := slices.Clone(old.commands)
	for i := range grown {
		if grown[i].Name == "" {
			grown[i] = Command{Name: "mget", Categories: CategoriesOf("read", "string", "fast")}
		}
	}
	s := New(old)
	for name, rules := range map[string][]string{
		"future": {"+@all", "-@write"}, "reader": {"+@read"}, "getter": {"+get"},
		"past": {"+@all", "-@read", "+get"}, "full": {"+@all", "~*", "&*"},
	} {
		s = change(t, s, name, rules...)
	}
	s = s.In(NewCatalog(grown))
	mget := Call{Command: old.find("get") + 1}
	for name, allowed := range map[string]bool{
		"future": true, "reader": true, "getter": false, "past": false, "full": true,
	} {
		u := s.Get([]byte(name))
		if _, denied, _ := u.Check(&mget, 1000); denied == allowed {
			t.Errorf("%s: allowed is %v", name, !allowed)
		}
		if u.Full() != (name == "full") {
			t.Errorf("%s: full is %v", name, u.Full())
		}
	}
}

// A check of many keys with many patterns ends, and denies the call.
func TestCheckIsBounded(t *testing.T) {
	var rules []string
	for i := range 900 {
		rules = append(rules, fmt.Sprintf("~key%d*x", i))
	}
	s := change(t, New(testCatalog()), "a", append(rules, "+get", "~k")...)
	call := Call{Command: testCatalog().find("get"), Keys: slices.Repeat([]Key{{Name: []byte("k")}},
		100_000)}
	const most = 1_000_000
	d, denied, units := s.Get([]byte("a")).Check(&call, most)
	if !denied || d.Reason != DeniedWork || units > most+10_000 {
		t.Errorf("%v %v after %d units", d, denied, units)
	}
	call.Keys = call.Keys[:200]
	if d, denied, units := s.Get([]byte("a")).Check(&call, most); denied || units < 100_000 {
		t.Errorf("%v %v after %d units", d, denied, units)
	}
}

func BenchmarkDescribe(b *testing.B) {
	s, _, _ := New(testCatalog()).Change([]byte("a"), 0,
		[][]byte{[]byte("+@all"), []byte("-@read"), []byte("-set")})
	u := s.Get([]byte("a"))
	for b.Loop() {
		_ = u.String()
	}
}

// The time of a unit, which is to be 25 ns at most, for rules that take long.
func BenchmarkRules(b *testing.B) {
	many := change(b, New(testCatalog()), "u", manyPatterns(900)...)
	first := change(b, New(testCatalog()), "u", manyFirstArgs(450)...)
	var hashes []string
	for i := range 500 {
		hashes = append(hashes, "#"+Hash([]byte(fmt.Sprint(i))))
	}
	for name, c := range map[string]struct {
		users *Users
		rules []string
	}{
		"patterns":         {many, manyPatterns(1500)},
		"one pattern":      {many, slices.Repeat([]string{"~383"}, 2000)},
		"first arguments":  {first, manyFirstArgs(2000)},
		"categories":       {first, slices.Repeat([]string{"+@geo", "-@hash"}, 1000)},
		"commands":         {first, slices.Repeat([]string{"+publish", "-flushall"}, 1000)},
		"all commands":     {first, slices.Repeat([]string{"+@all", "+get|x"}, 1000)},
		"passwords":        {many, slices.Repeat(hashes, 4)},
		"selectors":        {first, slices.Repeat([]string{"(~a)", "clearselectors"}, 1000)},
		"one selector":     {many, []string{"(" + strings.Join(manyPatterns(2000), " ") + ")"}},
		"resets":           {many, slices.Repeat([]string{"reset"}, 2000)},
		"flags":            {many, slices.Repeat([]string{"on"}, 2000)},
		"nothing":          {many, nil},
		"selectors of few": {many, slices.Repeat([]string{"()"}, 2000)},
		"long":             {many, []string{"&" + strings.Repeat("x", glob.MaxPattern)}},
	} {
		b.Run(name, func(b *testing.B) {
			done := 0
			for b.Loop() {
				_, units, _ := c.users.Change([]byte("u"), 0, args(c.rules))
				done += units
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(done), "ns/unit")
		})
	}
}

// An error shows the beginning of a large word, of rules and of a file alike, and a short word as
// it is.
func TestErrorsShowBeginnings(t *testing.T) {
	s := New(testCatalog())
	for _, size := range []int{100, maxShown, maxShown + 1, 64 << 10} {
		word := strings.Repeat("y", size-1)
		for _, rule := range []string{"y" + word, "+" + word, "-" + word, "%" + word, "(" + word,
			"(" + word[1:] + ")"} {
			var texts []string
			_, _, err := s.Change([]byte("a"), 1, [][]byte{[]byte(rule)})
			texts = append(texts, err.Error(), s.CheckRules([][]byte{[]byte(rule)}).Error())
			_, _, err = s.Replace("", []byte("user a "+rule+"\nuser "+word+" on\nuser "+word+" on"),
				1, maxTestWork)
			texts = append(texts, err.Error())
			for i, text := range texts {
				shown := strings.Contains(text, rule)
				if len(text) > 3*maxShown || i < 2 && shown != (size <= maxShown) {
					t.Errorf("%d bytes, %.10q: %d bytes of text %d: %.100q", size, rule, len(text),
						i, text)
				}
			}
		}
	}
}
