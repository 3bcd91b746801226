// This file holds the tests of what is certain when a leader stops, hands leadership over, or changes the members.
package cluster

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

// TestGoodbyeComesBehindReplies: a goodbye says that all was answered. Would it overtake a reply, then the member would send a write again that ran.
func TestGoodbyeComesBehindReplies(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	w := newWire(here, bufio.NewReader(here))
	in := &inbound{n: &Node{cfg: Config{groupReply: maxGroupReply}}, w: w, slots: make(chan struct{}, maxInboundFrames)}
	in.slots <- struct{}{}
	ended := make(chan error, 1)
	go func() { ended <- in.sayGoodbye(os.ErrDeadlineExceeded) }()
	eventually(t, "the goodbye waits for the last reply", func() bool { return len(in.slots) == cap(in.slots) })
	reply := bytes.Repeat([]byte("r"), 16<<20) // it takes a while to be built and checked
	go in.answer(&unit{frameID: 7}, [][]byte{reply}, nil)
	if f, err := readFrame(bufio.NewReader(there)); err != nil || f.kind != frameReply || f.id != 7 {
		t.Errorf("a frame of kind %d for request %d came, %v; want the reply", f.kind, f.id, err)
	}
	there.Close()
	<-ended
	w.close()
	<-w.done
}

// spiedToy calls spy when an entry is made.
type spiedToy struct {
	*toy
	spy func()
}

func (s spiedToy) AppendEntry(dst []byte, clockMs, wallUs int64, groups [][]byte) []byte {
	s.spy()
	return s.toy.AppendEntry(dst, clockMs, wallUs, groups)
}

// alone opens a node that is a cluster by itself, and waits until it is ready.
func alone(t *testing.T, m Machine) *Node {
	t.Helper()
	n, err := Open(Config{ID: "n1", ClientAddr: "client", DataDir: t.TempDir(), PeerListen: "127.0.0.1:0", Logger: testLogger()}, m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	eventually(t, "the node is ready", func() bool { return n.Status().Ready })
	return n
}

// TestWritesCountWhileTheirEntryIsMade: they are in no queue any more, so a node that stops would else take them for answered.
func TestWritesCountWhileTheirEntryIsMade(t *testing.T) {
	var n atomic.Pointer[Node]
	var made, missed atomic.Int32
	node := alone(t, spiedToy{newToy(), func() {
		if n := n.Load(); n != nil {
			made.Add(1)
			if n.inFlight.Load() == 0 {
				missed.Add(1)
			}
		}
	}})
	n.Store(node)
	if _, err := node.Write(t.Context(), []byte("w"), 1); err != nil {
		t.Fatal(err)
	}
	if made.Load() == 0 || missed.Load() > 0 {
		t.Errorf("%d of %d entries did not count while they were made", missed.Load(), made.Load())
	}
	eventually(t, "nothing is in flight", func() bool { return node.inFlight.Load() == 0 })
}
