package acl

import "testing"

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

func change(t *testing.T, s *Users, name string, rules ...string) *Users {
	t.Helper()
	var args [][]byte
	for _, r := range rules {
		args = append(args, []byte(r))
	}
	s, err := s.Change([]byte(name), 7, args)
	if err != nil {
		t.Fatalf("%q: %v", rules, err)
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

// What was encoded and read again is the same user, for this catalog and for another.
func TestEncoding(t *testing.T) {
	s := New(testCatalog())
	for i, rules := range [][]string{
		{}, {"on", ">secret", "#" + Hash([]byte("other")), "skip-sanitize-payload"}, {"reset"},
		{"~a", "%R~b", "%W~c", `~"q`, "&ch*", "&", "~"}, {"+@all", "-@read", "-config|get"},
		{"+select|0", "+select|1", "+@string", "+config", "-config|set"},
		{"allkeys", "allchannels"},
		{"+get", "(+set ~a &b)", "(-@all)", "(+@all ~* &*)"},
	} {
		s = change(t, s, string(rune('a'+i)), rules...)
	}
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
