// Snapshots that come in. In hashicorp/raft v1.7.3 Raft's main goroutine reads them, and does
// nothing else meanwhile: the node gives no vote.

package cluster

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// errSilentSender ends the reading of a snapshot.
var errSilentSender = errors.New("the leader that sends a snapshot is silent")

// timedReader knows since when it waits for its source.
type timedReader struct {
	io.Reader
	since atomic.Int64 // ns since processStart; 0: it does not wait
}

// Read implements io.Reader.
func (r *timedReader) Read(p []byte) (int, error) {
	r.since.Store(int64(time.Since(processStart)))
	defer r.since.Store(0)
	return r.Reader.Read(p)
}

// waitsFor reports whether it has waited for longer than that.
func (r *timedReader) waitsFor(limit time.Duration) bool {
	since := r.since.Load()
	return since != 0 && time.Since(processStart)-time.Duration(since) > limit
}

// attend has Raft read a snapshot only while its sender is heard of, by more of it or by
// heartbeats. A process that hangs keeps its connections, and another leader may need this node's
// vote. The rest is read here, when it comes, and answered then: what follows on the connection is
// another message.
func (t *transport) attend(rpc *raft.RPC) {
	source := &timedReader{Reader: rpc.Reader}
	in, out := io.Pipe()
	rpc.Reader = in
	read := make(chan struct{})
	rpc.RespChan = t.listen(rpc.RespChan, func(raft.RPCResponse) {
		_ = in.Close() // who refuses it has not read it
		<-read
	})
	go func() { // ends with the connection at the latest
		_, err := io.Copy(out, source)
		_ = out.CloseWithError(err)
		_, _ = io.Copy(io.Discard, source)
		close(read)
	}()
	go t.endSilent(source, out, read)
}

// endSilent ends the reading of a snapshot whose sender is silent, unless it is read before.
func (t *transport) endSilent(source *timedReader, out *io.PipeWriter, read <-chan struct{}) {
	patience := stallBeats * t.n.cfg.HeartbeatTimeout
	ticker := time.NewTicker(t.n.cfg.HeartbeatTimeout / watchDen)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if source.waitsFor(patience) && time.Since(t.n.raft.LastContact()) > patience {
				_ = out.CloseWithError(errSilentSender)
				return
			}
		case <-read:
			return
		case <-t.stop: // nobody may read it
			_ = out.CloseWithError(errSilentSender)
			return
		}
	}
}

// whileLeading is what a leader sends as long as it leads in a term, and is not stalled: who reads
// it gives no vote meanwhile.
type whileLeading struct {
	io.Reader
	n    *Node
	term uint64
}

// Read implements io.Reader.
func (r whileLeading) Read(p []byte) (int, error) {
	switch {
	case r.n.stalledLeader.Load():
		return 0, errStalled
	case !r.n.leadsIn(r.term):
		return 0, errGateClosed
	}
	return r.Reader.Read(p)
}
