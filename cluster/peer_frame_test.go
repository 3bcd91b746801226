// Tests of the forwarding protocol's bytes and handshake, and their fuzz targets.

package cluster

import (
	"bufio"
	"bytes"
	"net"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestFrameRoundTrip(t *testing.T) {
	for _, size := range []int{0, 1, 1 << 20, 3<<20 + 7} {
		payload := bytes.Repeat([]byte{7}, size)
		buf := endFrame(append(beginFrame(0), payload...), frameWrite, statusUnknown, 1<<40)
		f, err := readFrame(bufio.NewReader(bytes.NewReader(buf)))
		if err != nil || f.kind != frameWrite || f.status != statusUnknown || f.id != 1<<40 ||
			!bytes.Equal(f.payload, payload) {
			t.Errorf("%d bytes came back as %d, %v", size, len(f.payload), err)
		}
	}
	h := hello{protocolVersion, "n1", "host:1", "no", "host:2", true, 3, "b1", "c", "b2", true, 5,
		"amd64", "host:3", "v1", 7, "z", 9, 1, "n2", Build{"go1", "amd64/v1", "c0"}, 1 << 40}
	if got, err := readHello(bytes.NewReader(appendHello(nil, h))); err != nil || got != h {
		t.Errorf("hello %+v %v", got, err)
	}
	sums := sumsReport{1, stateSum{300, 4}, []stateSum{{64, 5}, {128, 6}}}
	if got, err := decodeSums(append(appendSums(nil, sums), 7)); err != nil ||
		!reflect.DeepEqual(got, sums) {
		t.Errorf("sums %+v %v", got, err)
	}
	for _, r := range []termReport{{1, 2, 3, 0, 0, 0}, {1, 2, 3, 4, 0, time.Second}} {
		payload := appendTermReport(nil, r)
		if got, err := decodeTermReport(payload); err != nil || got != r {
			t.Errorf("report %+v %v", got, err)
		}
		if got, err := decodeTermReport(payload[:len(payload)-1]); err == nil {
			t.Errorf("a part of a report is %+v", got)
		}
		if older := r.wallMs == 0; older != (len(payload) == 24) {
			t.Errorf("%+v has %d bytes: releases before 0.2 read 24", r, len(payload))
		}
	}
	full := termReport{1, 2, 3, 4, diskFull, time.Millisecond}
	later := append(appendTermReport(nil, full), 5)
	if got, err := decodeTermReport(later); err != nil || got != full {
		t.Errorf("a later version's report %+v %v", got, err)
	}
}

func TestFrameRefusals(t *testing.T) {
	good := endFrame(append(beginFrame(0), "payload"...), frameWrite, 0, 1)
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	for name, b := range map[string][]byte{
		"no kind":           change(8, 0),
		"an unknown kind":   change(8, byte(lastKind)+1),
		"an unknown status": change(9, byte(lastStatus)+1),
		"a reserved byte":   change(10, 1),
		"a huge size":       change(3, 0xff),
		"a long term frame": endFrame(make([]byte, frameHeaderLen+maxSmallFrame+1), frameTerm, 0,
			1),
		"a wrong checksum":   change(4, good[4]+1),
		"a changed payload":  change(frameHeaderLen, 'x'),
		"a frame that ends":  good[:len(good)-1],
		"a header that ends": good[:frameHeaderLen-1],
	} {
		if _, err := readFrame(bufio.NewReader(bytes.NewReader(b))); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	many := sumsReport{newest: stateSum{1, 1}, marks: make([]stateSum, marksKept+1)}
	for name, b := range map[string][]byte{
		"too many marks": appendSums(nil, many),
		"marks that end": appendSums(nil, sumsReport{marks: make([]stateSum, 3)})[:30],
		"no sum":         {1, 0, 5},
	} {
		if _, err := decodeSums(b); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	for name, b := range map[string][]byte{
		"no batches":          appendRequests(nil, 1, nil),
		"fewer requests":      appendRequests(nil, 1, [][]byte{{1}, {2}}),
		"too many requests":   appendRequests(nil, MaxBatchRequests+1, [][]byte{{1}}),
		"too many bytes":      appendRequests(nil, 2, [][]byte{make([]byte, maxEntryBytes), {2}}),
		"bytes behind":        append(appendRequests(nil, 1, [][]byte{{1}}), 0),
		"a batch that ends":   appendRequests(nil, 1, [][]byte{{1, 2}})[:4],
		"an impossible count": {1, 0xff, 0xff, 0xff, 0xff, 0x7f, 1},
	} {
		if _, err := decodeRequests(b); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

// TestLargeRepliesAreSeparate: a reply past the limit costs no other batch of its frame its reply.
func TestLargeRepliesAreSeparate(t *testing.T) {
	payload := appendReplies(nil, [][]byte{[]byte("12345"), []byte("123456"), {}, []byte("1")}, 0,
		5)
	got, err := decodeReplies(payload)
	if err != nil {
		t.Fatal(err)
	}
	if want := [][]byte{[]byte("12345"), nil, {}, []byte("1")}; !reflect.DeepEqual(got.replies,
		want) {
		t.Errorf("%q, want %q", got.replies, want)
	}
	for name, b := range map[string][]byte{
		"an unknown kind":   {1, lastReply + 1, 0},
		"bytes left out":    {1, replyTooBig, 1, 'x'},
		"a reply that ends": {1, replyWhole, 2, 'x'},
		"no kind":           {1},
		"bytes behind":      append(bytes.Clone(payload), 0, 0, 0, 0, 0),
		"half a number":     append(bytes.Clone(payload), 0x80),
	} {
		if a, err := decodeReplies(b); err == nil {
			t.Errorf("%s was read as %q", name, a.replies)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(endFrame(append(beginFrame(0), appendRequests(nil, 2,
		[][]byte{[]byte("a"), []byte("bc")})...), frameWrite, 0, 1))
	f.Add(endFrame(append(beginFrame(0), appendReplies(nil, [][]byte{[]byte("reply")}, 0,
		maxBatchReply)...), frameReply, statusDone, 2))
	f.Add(endFrame(appendTermReport(beginFrame(24), termReport{1, 2, 3, 4, 1, 5}), frameTerm, 0, 3))
	f.Add(endFrame(beginFrame(0), frameConfirm, 0, 4))
	f.Fuzz(func(t *testing.T, data []byte) {
		fr, err := readFrame(bufio.NewReader(bytes.NewReader(data)))
		if err != nil {
			return
		}
		again := endFrame(append(beginFrame(0), fr.payload...), fr.kind, fr.status, fr.id)
		if !bytes.HasPrefix(data, again) {
			t.Errorf("%x was read as %+v", data, fr)
		}
	})
}

func FuzzDecodePayloads(f *testing.F) {
	f.Add(appendRequests(nil, 2, [][]byte{[]byte("a"), []byte("bc")}))
	f.Add(appendWork(appendReplies(nil, [][]byte{[]byte("reply"), nil, []byte("too big")}, 1, 5),
		[]uint64{1, 300}))
	f.Add(appendHello(nil,
		hello{1, "n1", "a:1", "", "a:2", false, 3, "b", "c", "", true, 1, "", "", "", 0, "", 1, 0,
			"", Build{}, 0}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if q, err := decodeRequests(data); err == nil {
			again := appendRequests(nil, q.count, q.batches)
			if q.heavy {
				again = appendTag(again, q.tag)
			}
			if back, err := decodeRequests(again); err != nil || !reflect.DeepEqual(q, back) {
				t.Errorf("requests %x: %+v, again %+v %v", data, q, back, err)
			}
		}
		if a, err := decodeReplies(data); err == nil {
			back, err := decodeReplies(appendWork(appendReplies(nil, a.replies, 0, maxBatchReply),
				a.work))
			if err != nil || len(back.replies) != len(a.replies) ||
				!reflect.DeepEqual(back.work, a.work) {
				// those left out come back empty
				t.Errorf("replies %x: %+v, again %+v %v", data, a, back, err)
			}
		}
		if h, err := readHello(bytes.NewReader(data)); err == nil &&
			len(appendHello(nil, h)) <= maxHello {
			if back, err := readHello(bytes.NewReader(appendHello(nil, h))); err != nil ||
				back != h {
				t.Errorf("hello %x: %+v, again %+v %v", data, h, back, err)
			}
		}
	})
}

// TestHandshakeRefusals speaks to the peer port by hand.
func TestHandshakeRefusals(t *testing.T) {
	simulated(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		n := c.nodes["n1"]
		eventually(t, "n1 knows the cluster, and n2 in it", func() bool {
			return n.clusterID() != "" && n.view().register.incarnations["n2"] != "" &&
				n.hears("n2")
		})
		open := func(first []byte) net.Conn {
			return c.net.connect(t, "stranger",
				n.mux.Addr().String(), first...)
		}
		for _, test := range []struct {
			h    hello
			want string
		}{
			{hello{version: protocolVersion + 1, id: "n2"},
				"node n1 speaks version 1 of the peer protocol, node n2 version 2"},
			{hello{version: protocolVersion, id: "n1"}, `both nodes have the id "n1"`},
			{hello{version: protocolVersion}, "the node id is empty"},
			{hello{version: protocolVersion, id: "n9"},
				`node "n9" is not a member of the cluster of node n1`},
			{hello{version: protocolVersion, id: "n2", incarnation: "another"},
				"node n2 has no data, and a node with that id and its data runs at " +
					c.nodes["n2"].mux.Addr().String() + ": " + actOfATwin},
			{hello{version: protocolVersion, id: "n2", incarnation: c.nodes["n2"].incarnation,
				cluster: "x"}, "node n1 belongs to cluster " + n.clusterID() +
				", node n2 to cluster x: one was restored, recovered or founded again; empty the " +
				"unwanted one and --join it under a new id"},
			{hello{version: protocolVersion, id: "n2", incarnation: c.nodes["n2"].incarnation,
				arch: "abacus"}, "node n1 runs on " + runtime.GOARCH +
				", node n2 on abacus: all nodes of a cluster need the same processor architecture"},
			{hello{version: protocolVersion, id: "n2", incarnation: c.nodes["n2"].incarnation}, ""},
		} {
			conn := open(appendHello([]byte{streamForward}, test.h))
			if got, err := readHello(conn); err != nil || got.refusal != test.want ||
				got.id != "n1" ||
				got.clientAddr != "client-n1:1" {
				t.Errorf("%+v was answered %+v %v", test.h, got, err)
			}
			if test.want == "" { // accepted; now a broken frame ends it
				if _, err := conn.Write(bytes.Repeat([]byte{0xff}, 100)); err != nil {
					t.Fatal(err)
				}
			}
			if k, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("after %+v the connection goes on with %d bytes", test.h, k)
			}
		}
		for _, first := range []string{"x", "GET / HTTP/1.1\r\n\r\n",
			string(appendHello([]byte{streamForward}, hello{id: strings.Repeat("x", maxHello)}))} {
			if k, err := open([]byte(first)).Read(make([]byte, 1)); err == nil {
				t.Errorf("a connection that began with %.5q goes on with %d bytes", first, k)
			}
		}
	})
}
