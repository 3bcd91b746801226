// Fuzz targets of the peer port: strangers, members that send nonsense, and TLS that is changed on
// its way. None of them costs more than it sends, stays, or has the machine apply what no member
// sent.

package cluster

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coordd/cluster/membership"
	"github.com/coordd/coordd/internal/tests/tamper"
)

const (
	// fuzzAlloc is what one connection may allocate, in bytes, besides allocShare times its input.
	fuzzAlloc  = 8 << 20
	allocShare = 32
	fuzzEnds   = 20 * time.Second // within which a connection ends, on a busy machine
)

// fuzzed is a cluster whose node n1, or its leader, is sent nonsense.
type fuzzed struct {
	*testCluster
	n    *Node
	term uint64
	list int             // batches that were applied before
	may  map[string]bool // that members sent
}

// newFuzzed returns one over TCP: inputs of a fuzz target cannot share a bubble.
func newFuzzed(f testing.TB, size int, change func(*Config)) *fuzzed {
	c := newRealCluster(f, size, func(cfg *Config) {
		cfg.HeartbeatTimeout = 2 * time.Second // a busy machine keeps its leader
		if change != nil {
			change(cfg)
		}
	})
	z := &fuzzed{testCluster: c, n: c.leader(), may: map[string]bool{}}
	z.term = z.n.Status().Term
	return z
}

// send dials the node, has do send something, and waits until the node ends the connection.
func (z *fuzzed) send(t *testing.T, input int, do func(conn net.Conn)) (answer []byte) {
	t.Helper()
	before := tamper.Allocated()
	conn, err := tamper.Dial(z.n.mux.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	do(conn)
	_ = conn.SetDeadline(time.Now().Add(fuzzEnds))
	_ = conn.(*net.TCPConn).CloseWrite()
	answer, err = io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection stays")
	}
	if used := tamper.Allocated() - before; used > uint64(fuzzAlloc+allocShare*input) {
		t.Errorf("%d bytes cost %d", input, used)
	}
	return answer
}

// intact fails if anything changed, except by batches that members have sent, now or before: they
// may be applied later.
func (z *fuzzed) intact(t *testing.T, sent ...[]byte) {
	t.Helper()
	for _, b := range sent {
		z.may[string(b)] = true
	}
	s := z.n.Status()
	if s.Term != z.term || s.Role != membership.Leader || len(s.Members) != len(z.members) {
		t.Fatalf("the node is %v in term %d with %d members; it led in term %d", s.Role, s.Term,
			len(s.Members), z.term)
	}
	for _, m := range s.Members {
		if !slices.Contains(z.members, Member{ID: m.ID, PeerAddr: m.PeerAddr}) {
			t.Fatalf("a member %+v", m)
		}
	}
	list := z.toys[z.n.cfg.ID].batches()
	for _, got := range list[z.list:] {
		if !z.may[got] {
			t.Fatalf("%.100q was applied, which nobody sent", got)
		}
	}
	z.list = len(list)
}

// FuzzPeerStranger sends bytes to the peer port of a node that is alone, without TLS.
func FuzzPeerStranger(f *testing.F) {
	z := newFuzzed(f, 1, nil)
	member := appendHello(nil, hello{version: protocolVersion, id: "n2", peerAddr: "127.0.0.1:1",
		incarnation: z.n.incarnation, cluster: z.n.clusterID()})
	write := endFrame(append(beginFrame(0), appendRequests(nil, 1, [][]byte{[]byte("a")})...),
		frameWrite, 0, 1)
	target := []byte{streamRaft}
	for _, word := range []string{"n1", z.n.incarnation, "another"} {
		target = append(append(target, byte(len(word))), word...)
	}
	for _, seed := range []string{"", "R", "F", "A", "\x16", "x", "GET / HTTP/1.1\r\n\r\n",
		"F" + string(member) + string(write), "A" + string(member) + string(write),
		"F\xff\xff\xff\xff", "F\x00\x10\x00\x00", "F\x00\x00\x00\x00", "R\xff", "R\x02n1\x00\x00",
		string(target) + "\x00\x87", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		answer := z.send(t, len(sent), func(conn net.Conn) { _, _ = conn.Write(sent) })
		if len(answer) > 0 {
			if h, err := readHello(bytes.NewReader(answer)); err != nil || h.refusal == "" ||
				len(appendHello(nil, h)) < len(answer) {
				t.Errorf("%q was answered %q", sent, answer)
			}
		}
		z.intact(t)
		eventually(t, "the node has forgotten the connection", func() bool {
			return z.n.mux.unidentified.Len() == 0
		})
	})
}

// FuzzPeerMember has a member send frames, after its hello: as they are, or made of kind, status,
// size (u16, little endian) and payload each, with the header that belongs to it.
func FuzzPeerMember(f *testing.F) {
	z := newFuzzed(f, 3, nil)
	member := z.followers()[0]
	small := func(kind frameKind, payload []byte) []byte {
		b := []byte{byte(kind), 0}
		return append(binary.LittleEndian.AppendUint16(b, uint16(len(payload))), payload...)
	}
	request := appendRequests(nil, 2, [][]byte{[]byte("a"), []byte("bc")})
	admin, err := json.Marshal(adminRequest{})
	if err != nil {
		f.Fatal(err)
	}
	for _, kind := range []byte{streamForward, streamAdmin} {
		for _, seed := range [][]byte{small(frameWrite, request), small(frameRead, request),
			small(frameWrite, appendTag(appendRequests(nil, 1, [][]byte{[]byte("a")}),
				tag{1, 1 << 40})),
			small(frameConfirm, appendCommit(nil, 3, 1<<60)), small(frameConfirm, nil),
			small(frameReply, appendReplies(nil, [][]byte{[]byte("r")}, 1, 5)),
			small(frameTerm, appendTermReport(nil, termReport{1, 2, 3, 4, 1, 5})),
			small(frameSums, appendSums(nil, sumsReport{1, stateSum{9, 9}, []stateSum{{1, 2}}})),
			small(frameDrained, nil), small(frameAdmin, admin), small(frameWrite, nil),
			bytes.Repeat(small(frameRead, request), 100),
		} {
			f.Add(kind, seed, true)
		}
		head := endFrame(beginFrame(0), frameWrite, 0, 1)
		binary.LittleEndian.PutUint32(head, maxRequestFrame)
		f.Add(kind, append(head, "only these"...), false)
		f.Add(kind, bytes.Repeat([]byte{0xff}, 100), false)
	}
	f.Fuzz(func(t *testing.T, kind byte, input []byte, fitting bool) {
		if len(input) > 1<<16 {
			t.Skip("longer than what a fuzzer can do much with")
		}
		if kind != streamForward {
			kind = streamAdmin
		}
		frames := input
		if fitting {
			frames = fittingFrames(input)
		}
		batches, changes := carried(frames)
		if changes {
			t.Skip("what members may ask for")
		}
		h := member.hello(z.n.cfg.ID, "")
		z.send(t, len(frames), func(conn net.Conn) {
			_, _ = conn.Write(appendHello([]byte{kind}, h))
			_, _ = conn.Write(frames)
		})
		z.intact(t, batches...)
	})
}

// fittingFrames makes frames of a fuzzer's input.
func fittingFrames(in []byte) (out []byte) {
	for id := uint64(1); len(in) >= 4; id++ {
		kind, status := frameKind(in[0]), frameStatus(in[1])
		size := min(int(binary.LittleEndian.Uint16(in[2:])), len(in)-4)
		out = append(out, endFrame(append(beginFrame(size), in[4:4+size]...), kind, status,
			id)...)
		in = in[4+size:]
	}
	return out
}

// carried returns the batches in frames of writes, also of those that end a connection later, and
// whether one asks to change the members.
func carried(frames []byte) (batches [][]byte, changes bool) {
	for r := bufio.NewReader(bytes.NewReader(frames)); ; {
		f, err := readFrame(r)
		if err != nil {
			return batches, changes
		}
		if q, err := decodeRequests(f.payload); err == nil && f.kind == frameWrite {
			batches = append(batches, q.batches...)
		}
		var q adminRequest
		if f.kind == frameAdmin && json.Unmarshal(f.payload, &q) == nil && q.Change != nil {
			changes = true
		}
	}
}

// FuzzPeerTLS has a member open a connection over TLS and write a batch, while somebody changes
// what it sends, or sends something else. The leader takes the batch, or nothing.
func FuzzPeerTLS(f *testing.F) {
	ca := newCA(f)
	z := newFuzzed(f, 3, ca.useTLS(PeerTLSRequired))
	member := z.followers()[0].cfg.ID
	i := intruder{files: ca.files("prod", member)}
	cfg := i.config()
	for _, at := range []uint16{0, 1, 3, 5, 9, 11, 43, 44, 76, 200, 300, 1000, 1500, 1700, 4000} {
		for kind := range tamper.Kinds + 1 {
			f.Add(byte(kind), at, []byte{0})
			f.Add(byte(kind), at, []byte{20, 3, 3, 0, 1, 1})
		}
	}
	f.Add(byte(tamper.Kinds), uint16(0), []byte("F\x00\x00\x00\x00"))
	f.Add(byte(tamper.Kinds), uint16(0), []byte("\x16\x03\x01\xff\xff"))
	f.Add(byte(tamper.Kinds), uint16(0), bytes.Repeat([]byte("\x16\x03\x01\x00\x01\x01"), 500))
	count := 0
	f.Fuzz(func(t *testing.T, kind byte, at uint16, text []byte) {
		if len(text) > 1<<14 {
			t.Skip("longer than what a fuzzer can do much with")
		}
		count++
		batch := fmt.Append(nil, "batch ", count)
		kind %= byte(tamper.Kinds) + 1
		var changed *tamper.Conn
		z.send(t, len(text)+4096, func(conn net.Conn) {
			if kind == byte(tamper.Kinds) {
				_, _ = conn.Write(text)
				return
			}
			changed = tamper.New(conn, tamper.Edit{Kind: tamper.Kind(kind), At: int(at),
				Text: text}, 20*time.Millisecond)
			_ = conn.SetReadDeadline(time.Now().Add(fuzzEnds))
			z.writeAs(tls.Client(changed, cfg), member, batch)
		})
		if changed == nil {
			z.intact(t)
			return
		}
		if before := z.list; !changed.Begun() {
			eventually(t, "the batch is applied", func() bool {
				return len(z.toys[z.n.cfg.ID].batches()) > before
			})
		}
		z.intact(t, batch)
	})
}

// writeAs sends a batch as a member and waits for the reply.
func (z *fuzzed) writeAs(conn *tls.Conn, id string, batch []byte) {
	h := z.nodes[id].hello(z.n.cfg.ID, "")
	if _, err := conn.Write(appendHello([]byte{streamForward}, h)); err != nil {
		return
	}
	r := bufio.NewReader(conn)
	if _, err := readHello(r); err != nil {
		return
	}
	if _, err := conn.Write(endFrame(append(beginFrame(0), appendRequests(nil, 1,
		[][]byte{batch})...), frameWrite, 0, 1)); err == nil {
		_, _ = readFrame(r)
	}
}

// TestReplay sends what a member sent over TLS once more, as somebody can who has seen it pass.
func TestReplay(t *testing.T) {
	ca := newCA(t)
	z := newFuzzed(t, 3, ca.useTLS(PeerTLSRequired))
	member := z.followers()[0].cfg.ID
	conn, err := tamper.Dial(z.n.mux.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(fuzzEnds))
	seen := &recorded{Conn: conn}
	z.writeAs(tls.Client(seen, intruder{files: ca.files("prod", member)}.config()), member,
		[]byte("once"))
	eventually(t, "the batch is applied", func() bool {
		return len(z.toys[z.n.cfg.ID].batches()) == 1
	})
	for range 3 {
		z.send(t, len(seen.sent), func(conn net.Conn) { _, _ = conn.Write(seen.sent) })
	}
	z.write(z.n, "after")
	if list := z.converged(); len(list) != 2 {
		t.Errorf("applied %q", list)
	}
}

// recorded keeps what is sent.
type recorded struct {
	net.Conn
	sent []byte
}

func (r *recorded) Write(p []byte) (int, error) {
	r.sent = append(r.sent, p...)
	return r.Conn.Write(p)
}

// FuzzRaftMessages sends bytes to the library's decoder of Raft messages, which takes them from
// members, and without TLS from everybody.
func FuzzRaftMessages(f *testing.F) {
	for _, seed := range []string{"", "\x00", "\x01\x80", "\x02\x80", "\x03\x80", "\x04\x80",
		"\x00\x81\xa7Entries\xdd\xff\xff\xff\xff", "\x00\x81\xa7Entries\xdd\x7f\xff\xff\xff",
		"\x00\x81\xa6Leader\xc6\xff\xff\xff\xff", "\x00\x81\xa4Term\xcf\xff\xff\xff\xff\xff\xff",
		"\x00\x81\xa9RPCHeader\x81\xa2ID\xdb\x7f\xff\xff\xff", "\x02\xdf\xff\xff\xff\xff",
		"\x02\x81\xa4Size\xcf\x7f\xff\xff\xff\xff\xff\xff\xff", "\x05\x80", "\xff",
	} {
		f.Add([]byte(seed))
	}
	near := make(chan net.Conn)
	layer := &certifiedLayer{addr: &net.TCPAddr{}, conns: near, closed: make(chan struct{})}
	trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: layer,
		Timeout: fuzzEnds, Logger: newRaftLogger(testLogger())})
	f.Cleanup(func() { _ = trans.Close() })
	go func() {
		for rpc := range trans.Consumer() {
			if rpc.Reader != nil {
				_, _ = io.Copy(io.Discard, rpc.Reader)
			}
			rpc.Respond(nil, errNotTheirName)
		}
	}()
	f.Fuzz(func(t *testing.T, sent []byte) {
		before := tamper.Allocated()
		conn, far := net.Pipe()
		near <- far
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		_ = conn.SetDeadline(time.Now().Add(fuzzEnds))
		if _, err := conn.Write(sent); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("it does not read on")
		}
		_ = conn.Close()
		if used := tamper.Allocated() - before; used > uint64(fuzzAlloc+allocShare*len(sent)) {
			t.Errorf("%q cost %d bytes", sent, used)
		}
	})
}
