package acl

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
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

func change(t *testing.T, s *Users, name string, rules ...string) *Users {
	t.Helper()
	s, err := s.Change([]byte(name), 7, args(rules))
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
	if string(restored.AppendTo(nil)) != string(encoded) || restored.bytes != s.bytes ||
		s.bytes != len(encoded)-1 {
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
	loaded, err := users.Replace("", users.File(), 0)
	if err != nil {
		t.Fatalf("%v: %.2000s", err, users.File())
	}
	same(t, "loaded", loaded, users)
	return []*Users{users, restored, loaded}[rnd.IntN(3)]
}

// After every change the users of a snapshot and those of a file are the ones that were written.
func TestUsersComeBack(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	c := testCatalog()
	users, changes := New(c), 0
	for range 30_000 {
		rules := make([]string, 1+rnd.IntN(4))
		for i := range rules {
			rules[i] = randomRule(rnd, c)
		}
		if rnd.IntN(20) == 0 {
			rules[0] = "reset"
		}
		changed, err := users.Change([]byte(fmt.Sprint("u", rnd.IntN(2))), 7, args(rules))
		if err != nil {
			continue
		}
		changes++
		users = again(t, changed, rnd)
	}
	if changes < 5000 {
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
		users, err := New(testCatalog()).Change([]byte("u"), 7, args(strings.Split(rules, " ")))
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
	loaded, err := s.Replace("f", s.File(), 9)
	if err != nil {
		t.Fatal(err)
	}
	if have, want := string(loaded.AppendTo(nil)), string(s.AppendTo(nil)); have != want {
		t.Errorf("%q, want %q", have, want)
	}
	loaded, err = s.Replace("f", []byte("user new on\nuser a +get"), 9)
	if err != nil {
		t.Fatal(err)
	}
	if loaded.Len() != 3 || !loaded.Default().Full() || loaded.Get([]byte("a")).Created() != 7 ||
		loaded.Get([]byte("new")).Created() != 9 {
		t.Errorf("%v", loaded.All())
	}
}

func TestLimits(t *testing.T) {
	s := New(testCatalog())
	refused := func(want Error, name string, rules ...string) {
		t.Helper()
		_, err := s.Change([]byte(name), 0, args(rules))
		if rule, ok := err.(*RuleError); ok {
			err = rule.Err
		}
		if err != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
	long := strings.Repeat("x", maxPattern)
	s = change(t, s, "a", "~"+long, "&"+long)
	refused(errPattern, "a", "~x"+long)
	refused(errPattern, "a", "&x"+long)
	s = change(t, s, "a", slices.Repeat([]string{"on"}, maxRules)...)
	refused(errRules, "a", slices.Repeat([]string{"on"}, maxRules+1)...)
	refused(errName, "a b")

	var patterns []string // of 1000 bytes, with what they take besides
	for i := range 31 {
		patterns = append(patterns, fmt.Sprintf("~%02d%s", i, long[:995]))
	}
	s = change(t, s, "b", patterns...)
	refused(errUserBytes, "b", "~1"+long[1:], "~2"+long[1:])

	many := New(testCatalog())
	var file strings.Builder
	for i := range MaxUsers - 1 {
		fmt.Fprintf(&file, "user u%d\n", i)
	}
	many, err := many.Replace("", []byte(file.String()), 0)
	if err != nil || many.Len() != MaxUsers {
		t.Fatal(err)
	}
	if _, err := many.Change([]byte("more"), 0, nil); err != errUsers {
		t.Errorf("%v, want %q", err, errUsers)
	}
	fmt.Fprintf(&file, "user more\n")
	if _, err := many.Replace("", []byte(file.String()), 0); err != errUsers {
		t.Errorf("%v, want %q", err, errUsers)
	}
	file.Reset()
	for i := range maxBytes / maxUserBytes {
		fmt.Fprintf(&file, "user u%d %s ~%s\n", i, strings.Join(patterns, " "), long[5:])
	}
	if _, err := many.Replace("", []byte(file.String()), 0); err != nil {
		t.Error(err)
	}
	for i := range 20 {
		fmt.Fprintf(&file, "user more%d %s\n", i, strings.Join(patterns, " "))
	}
	if _, err := many.Replace("", []byte(file.String()), 0); err != errBytes {
		t.Errorf("%v, want %q", err, errBytes)
	}
}

func TestPasswordsAreHashed(t *testing.T) {
	rules := HashRules([][]byte{[]byte("on"), []byte(">a"), []byte("<b"), {}, []byte("~>c")})
	want := []string{"on", "#" + Hash([]byte("a")), "!" + Hash([]byte("b")), "", "~>c"}
	for i, r := range rules {
		if string(r) != want[i] {
			t.Errorf("%s, want %s", r, want[i])
		}
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
	for i := range 1000 {
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
	call.Keys = call.Keys[:100]
	if d, denied, units := s.Get([]byte("a")).Check(&call, most); denied || units < 100_000 {
		t.Errorf("%v %v after %d units", d, denied, units)
	}
}

func BenchmarkDescribe(b *testing.B) {
	s, _ := New(testCatalog()).Change([]byte("a"), 0,
		[][]byte{[]byte("+@all"), []byte("-@read"), []byte("-set")})
	u := s.Get([]byte("a"))
	for b.Loop() {
		_ = u.String()
	}
}
