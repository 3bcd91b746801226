package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/internal/tests/seeds"
)

// noAddresses are not host:port, or would be something else where they are shown or logged.
var noAddresses = []string{
	"", "h", "h:", "h:x", "h:http", "h:-1", "h:+1", "h:65536", "h:1:2", "[h:1", "::1:7000",
	"[::1]7000", "removed/x:1", "born/n1=0:1", "cluster/x:1", "h,i:1", "n1=h:1", "a b:1", "h\xff:1",
	"h\x00:1", "bücher:1", "h:1\r\n", "h:70\nline", "[::1\r\nmaster_host:evil\r\nx]:7000",
	"[::1%a b]:1", "[::1%]:1", "1.2.3.4%lo:1", "[h:i]:1",
	strings.Repeat("h", maxHostLen+1) + ":1", "h:" + strings.Repeat("0", 1<<20) + "x",
}

func TestAddresses(t *testing.T) {
	for _, addr := range []string{"h:1", "n1.test:7000", "a_b-c.d.:65535", "127.0.0.1:0", ":6379",
		"0.0.0.0:1", "[::]:1", "[::1]:7000", "[fe80::1%eth0.1]:7000", "[::ffff:1.2.3.4]:1",
		strings.Repeat("h", maxHostLen) + ":1"} {
		host, err := peerHost(addr)
		reached := strings.HasSuffix(addr, "7000") || strings.ContainsAny(host, "haf")
		if CheckAddress(addr) != nil || (err == nil) != reached || shownAddress(addr) != addr {
			t.Errorf("%q: %v, for peers %q %v", addr, CheckAddress(addr), host, err)
		}
	}
	for _, addr := range noAddresses {
		if CheckAddress(addr) == nil {
			t.Errorf("%.50q is an address", addr)
		}
		if _, err := peerHost(addr); err == nil || len(err.Error()) > 500 {
			t.Errorf("%.50q for peers: %.600v", addr, err)
		}
		if s := shownAddress(addr); !isLine(s) || len(s) > 500 {
			t.Errorf("%.50q is shown as %.600q", addr, s)
		}
	}
}

// What is no address gets into no configuration.
func TestAddRefusesWhatIsNoAddress(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		n := c.leader()
		c.write(n, "a")
		for _, addr := range noAddresses {
			before := n.raft.LastIndex()
			err := n.ChangeMembers(membership.Change{Kind: membership.Add, ID: "n9",
				PeerAddr: addr})
			if !errors.Is(err, ErrRefused) || n.raft.LastIndex() != before {
				t.Errorf("RAFT ADD n9 %.50q: %v", addr, err)
			}
		}
	})
}

// A cluster that has what 0.1 took for an address goes on: snapshots can be written and read, and
// lists of members have no line of it.
func TestEarlierAddresses(t *testing.T) {
	c := newRealCluster(t, 1, nil)
	n := c.leader()
	for i, addr := range []string{"127.0.0.1:\xff", "127.0.0.1:7\r\nmaster_host:evil\r\n"} {
		id := raft.ServerID(fmt.Sprint("n", i+5))
		if err := n.raft.AddNonvoter(id, raft.ServerAddress(addr), 0, 0).Error(); err != nil {
			t.Fatal(err)
		}
	}
	c.write(n, "a")
	if err := n.Snapshot(); err != nil {
		t.Fatal(err)
	}
	c.close("n1")
	c.reopen("n1")
	n = c.leader()
	for _, m := range n.Status().Members {
		if !isLine(m.PeerAddr) {
			t.Errorf("%s is shown at %q", m.ID, m.PeerAddr)
		}
	}
	if len(n.Status().Members) != 3 {
		t.Errorf("members: %+v", n.Status().Members)
	}
	if err := n.ChangeMembers(membership.Change{Kind: membership.Remove, ID: "n5"}); err != nil {
		t.Error(err)
	}
	if err := n.Snapshot(); err != nil {
		t.Error(err)
	}
}

// A hello says nothing that would be something else in the log, in lists or in INFO.
func TestHellosAreChecked(t *testing.T) {
	good := hello{version: protocolVersion, id: "n1", priority: DefaultPriority,
		incarnation: randomWord(incarnationBytes), cluster: NewClusterID(),
		expects: seededIncarnation("a", "b"), to: "n2", clientAddr: ":6379", peerAddr: "h:1",
		tlsAddr: "[::1]:2", refusal: `node "n9" is not a member`, arch: "amd64",
		release: "0.2.0 (devel)", zone: "eu-1a", build: ThisBuild()}
	read := func(h hello) error {
		_, err := readHello(bytes.NewReader(appendHello(nil, h)))
		return err
	}
	for _, h := range []hello{good, {}, {version: protocolVersion}} {
		if err := read(h); err != nil {
			t.Errorf("%+v: %v", h, err)
		}
	}
	line := []string{"a\nb", "a\r", "\x00", "\x7f", "\xff", "\u0085"}
	word := append([]string{"a,b", "a=b", "a/b", "a b", "é", strings.Repeat("x", maxWordLen+1)},
		line...)
	for _, kind := range []struct {
		bad    []string
		fields func(*hello) []*string
	}{
		{word, func(h *hello) []*string {
			return []*string{&h.id, &h.incarnation, &h.cluster, &h.expects, &h.to}
		}},
		{noAddresses[1 : len(noAddresses)-1], func(h *hello) []*string {
			return []*string{&h.clientAddr, &h.peerAddr, &h.tlsAddr}
		}},
		{append([]string{"a b", "a,b"}, line...), func(h *hello) []*string {
			return []*string{&h.zone}
		}},
		{line, func(h *hello) []*string {
			return []*string{&h.refusal, &h.arch, &h.release, &h.build.Go, &h.build.Processor,
				&h.build.Commit}
		}},
	} {
		for i := range kind.fields(&hello{}) {
			for _, bad := range kind.bad {
				h := good
				*kind.fields(&h)[i] = bad
				if read(h) == nil {
					t.Errorf("field %d may be %q: %+v", i, bad, h)
				}
			}
		}
	}
}

// TestMembersSayNothingOfOthers: a new member's incarnation does not say which ones others have.
func TestMembersSayNothingOfOthers(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		lead := c.leader()
		c.write(lead, "a")
		eventually(t, "all members are registered", func() bool {
			return len(lead.view().register.incarnations) == 3
		})
		want := maps.Clone(lead.view().register.incarnations)
		n4 := c.joiner("n4", true)
		n4.incarnation = "x,n1=0000,n2=0000,n3=0000"
		if err := lead.ChangeMembers(membership.Change{Kind: membership.Add, ID: "n4",
			PeerAddr: n4.mux.Addr().String()}); !errors.Is(err, ErrNotRun) {
			t.Errorf("n4 was added: %v", err)
		}
		// added while nobody answered there
		if err := lead.moveNonvoter("n4", raft.ServerAddress(n4.mux.Addr().String())); err != nil {
			t.Fatal(err)
		}
		eventually(t, "n4 was asked", func() bool {
			l := lead.link("n4")
			if l == nil {
				return false
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.attempted && l.fault != ""
		})
		if got := lead.view().register.incarnations; !maps.Equal(got, want) {
			t.Errorf("the register has %v, want %v", got, want)
		}
	})
}

// The register is read as it was written, whatever words are in it, and the first of two entries
// for an id holds.
func TestRegisterIsReadAsItWasWritten(t *testing.T) {
	rnd := rand.New(rand.NewPCG(seeds.Of(t), 0))
	word := func() string {
		for {
			b := make([]byte, rnd.IntN(5))
			for i := range b {
				b[i] = "a1Z._-,=/\xff \n"[rnd.IntN(12)]
			}
			if isWord(string(b)) {
				return string(b)
			}
		}
	}
	for range 2000 {
		r := register{word(), map[string]string{}}
		for range rnd.IntN(4) {
			if id, incarnation := word(), word(); id != "" && incarnation != "" {
				r.incarnations[id] = incarnation
			}
		}
		if got := registerOf(raft.Configuration{Servers: []raft.Server{r.server()}}); got.cluster !=
			r.cluster || !maps.Equal(got.incarnations, r.incarnations) {
			t.Fatalf("%+v comes back as %+v", r, got)
		}
	}
	twice := raft.Server{ID: "cluster/c", Address: "born/n1=a,n2=b,n1=c,n2=d,n3=,=e,n3=f"}
	if got, want := registerOf(raft.Configuration{Servers: []raft.Server{twice}}).incarnations,
		(map[string]string{"n1": "a", "n2": "b", "n3": "f"}); !maps.Equal(got, want) {
		t.Errorf("%s has %v, want %v", twice.Address, got, want)
	}
}

// A configuration grows up to its limit, far below what the log reads, and no further.
func TestRoomForMembers(t *testing.T) {
	long := raft.ServerAddress(strings.Repeat("h", maxHostLen) + ":65535")
	id := func(i int) raft.ServerID {
		return raft.ServerID(fmt.Sprintf("%0*d", maxWordLen, i))
	}
	var servers []raft.Server
	each := len(raft.EncodeConfiguration(raft.Configuration{Servers: slices.Repeat(
		[]raft.Server{{ID: id(0), Address: long}}, 2)})) -
		len(raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{
			{ID: id(0), Address: long}}}))
	for i := range maxConfiguration/each - 1 {
		servers = append(servers, raft.Server{ID: id(i), Address: long})
	}
	more := raft.Server{ID: id(1 << 20), Address: long}
	if err := checkRoom(servers, more); err != nil {
		t.Error(err)
	}
	servers = append(servers, more)
	if err := checkRoom(servers, more); !errors.Is(err, ErrRefused) {
		t.Errorf("one more: %v", err)
	}
	if err := checkRoom(servers[:1], raft.Server{ID: "n2", Address: long}); err != nil {
		t.Errorf("a second one: %v", err)
	}
}
