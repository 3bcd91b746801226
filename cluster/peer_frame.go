// This file holds the bytes of the forwarding protocol: hello, frames, and the batches inside them.
package cluster

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/coordd/coordd/internal/wire"
)

// The first byte of a connection to the peer port says what it carries.
const (
	streamRaft    byte = 'R' // then the id and the incarnation of the node that is meant, and the dialer's cluster, each behind its length in one byte
	streamForward byte = 'F'
	streamAdmin   byte = 'A'
)

// protocolVersion is the version of the forwarding protocol. A hello of another version is refused with a reason; the
// layout of hello and of its answer stays as it is for ever.
const protocolVersion = 1

const maxHello = 4096 // bytes

// hello is what both ends say of themselves before the first frame.
type hello struct {
	version     uint64
	id          string
	clientAddr  string
	refusal     string // the acceptor's reason for refusing; empty when it accepts
	peerAddr    string // where the others are to reach the node; empty: an older version, which does not say
	removed     bool   // the reason is that the dialer was removed from the cluster
	level       uint64 // the newest feature level that the node knows; 0: a version that does not say
	incarnation string // of its data directory
	cluster     string // the cluster's id; empty: the node belongs to none for certain
	expects     string // the incarnation that it knows of the other end; empty: none
	lostDisk    bool   // the reason is that the dialer has another incarnation than is known of it
	abilities   uint64 // what the node understands beyond the version: abilities of an older one are 0
	arch        string // its processor architecture; empty: an older version, which does not say
}

// abilityDryRun: among batches of reads it takes such as may write, and runs them up to the first request that would.
const abilityDryRun = 1 << 0

// abilityScheduling: a frame of one heavy batch tells whose it is and what it is expected to do; and where this node is the one that asks, the answer
// may say of a batch that it did not run, and tells the work of each.
const abilityScheduling = 1 << 1

// ownAbilities are those of this version.
const ownAbilities = abilityDryRun | abilityScheduling

// appendHello appends a length (u32 little endian) and the fields.
func appendHello(dst []byte, h hello) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.AppendUvarint(dst, h.version)
	for _, s := range []string{h.id, h.clientAddr, h.refusal} {
		dst = wire.AppendBytes(dst, s)
	}
	dst = wire.AppendBool(wire.AppendBytes(dst, h.peerAddr), h.removed)
	dst = binary.AppendUvarint(dst, h.level)
	for _, s := range []string{h.incarnation, h.cluster, h.expects} {
		dst = wire.AppendBytes(dst, s)
	}
	dst = wire.AppendBool(dst, h.lostDisk)
	dst = wire.AppendBytes(binary.AppendUvarint(dst, h.abilities), h.arch)
	binary.LittleEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

func readHello(r io.Reader) (hello, error) {
	var h hello
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return h, err
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n > maxHello {
		return h, fmt.Errorf("a hello of %d bytes, the limit is %d", n, maxHello)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return h, err
	}
	c := wire.NewCursor(body)
	h.version = c.Uvarint()
	h.id, h.clientAddr, h.refusal = c.Text(), c.Text(), c.Text()
	if c.Len() > 0 {
		h.peerAddr, h.removed = c.Text(), c.Bool()
	}
	if c.Len() > 0 {
		h.level = c.Uvarint()
	}
	if c.Len() > 0 {
		h.incarnation, h.cluster, h.expects, h.lostDisk = c.Text(), c.Text(), c.Text(), c.Bool()
	}
	if c.Len() > 0 {
		h.abilities = c.Uvarint()
	}
	if c.Len() > 0 {
		h.arch = c.Text()
	}
	if c.Failed() {
		return h, errors.New("a malformed hello")
	}
	return h, nil // bytes after the known fields are a later version's
}

// frameKind is what a frame carries.
type frameKind uint8

const (
	frameWrite   frameKind = iota + 1 // batches of writes, to the leader
	frameRead                         // batches of reads, to the leader
	frameConfirm                      // the leader's question: which term are you in? Its payload: the leader's term and commit index, as uvarints; empty: a version that does not say
	frameReply                        // the answer to a write or read frame: status and replies
	frameTerm                         // the answer to a confirm frame
	frameAdmin                        // a change of the members, or its answer, on a connection of its own
	frameDrained                      // from a node that stops: what it has not answered on this connection did not run and never will
	lastKind     = frameDrained
)

// frameStatus is the outcome of a write or read frame, of all its batches together.
type frameStatus uint8

const (
	statusDone     frameStatus = iota // ran; the replies follow
	statusNotTaken                    // did not run and never will here: route it again
	statusUnknown                     // may or may not have run; the reason follows
	lastStatus     = statusUnknown
)

const (
	frameHeaderLen = 20
	// A frame of requests holds one batch, or one batch with its lengths.
	maxRequestFrame = MaxBatchBytes + maxEntryBytes
	maxReplyFrame   = 1 << 30
	// maxBatchReply bounds the reply to one batch that is passed on; a larger one is told apart from the others. The machine answers a batch with
	// 64 MiB, and an error of some 100 bytes for each command of a transaction that does not fit.
	maxBatchReply = 192 << 20
	// maxReadReplies is how many bytes of replies to the batches of one frame of reads are enough: the batches behind them are left out.
	maxReadReplies = 64 << 20
	maxSmallFrame  = 64
	maxAdminFrame  = 1 << 20
)

// maxPayload bounds the payload (bytes) of each kind.
func maxPayload(kind frameKind) uint32 {
	switch kind {
	case frameWrite, frameRead:
		return maxRequestFrame
	case frameReply:
		return maxReplyFrame
	case frameAdmin:
		return maxAdminFrame
	default:
		return maxSmallFrame
	}
}

// frame is one message. On the wire: payload length u32, CRC-32C of the payload u32, kind u8, status u8, zero u16,
// id u64, payload; little endian.
type frame struct {
	kind    frameKind
	status  frameStatus
	id      uint64
	payload []byte
}

// beginFrame returns a buffer with room for a header and the payload's size (a hint), to be ended by endFrame.
func beginFrame(size int) []byte {
	return make([]byte, frameHeaderLen, frameHeaderLen+size)
}

// endFrame fills the header in.
func endFrame(buf []byte, kind frameKind, status frameStatus, id uint64) []byte {
	payload := buf[frameHeaderLen:]
	binary.LittleEndian.PutUint32(buf, uint32(len(payload)))
	binary.LittleEndian.PutUint32(buf[4:], crc32.Checksum(payload, castagnoli))
	buf[8], buf[9], buf[10], buf[11] = byte(kind), byte(status), 0, 0
	binary.LittleEndian.PutUint64(buf[12:], id)
	return buf
}

// readFrame reads one frame. The payload is newly allocated, in steps as it arrives, so that a false length costs
// nothing.
func readFrame(r *bufio.Reader) (frame, error) {
	var head [frameHeaderLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	f := frame{kind: frameKind(head[8]), status: frameStatus(head[9]), id: binary.LittleEndian.Uint64(head[12:])}
	size, sum := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:])
	switch {
	case f.kind == 0 || f.kind > lastKind || f.status > lastStatus || head[10] != 0 || head[11] != 0:
		return frame{}, errors.New("a malformed frame header")
	case size > maxPayload(f.kind):
		return frame{}, fmt.Errorf("a frame of kind %d with %d bytes, the limit is %d", f.kind, size, maxPayload(f.kind))
	}
	const step = 1 << 20
	for have := 0; have < int(size); have = len(f.payload) {
		n := min(int(size)-have, max(step, have))
		f.payload = append(make([]byte, 0, have+n), f.payload...)[:have+n]
		if _, err := io.ReadFull(r, f.payload[have:]); err != nil {
			return frame{}, err
		}
	}
	if crc32.Checksum(f.payload, castagnoli) != sum {
		return frame{}, errors.New("a frame with a wrong checksum")
	}
	return f, nil
}

// appendRequests appends the payload of a write or read frame: the number of requests, of batches, and the batches.
func appendRequests(dst []byte, count int, batches [][]byte) []byte {
	return wire.AppendList(binary.AppendUvarint(dst, uint64(count)), batches)
}

// requests are the payload of a write or read frame.
type requests struct {
	count   int
	batches [][]byte // slices of the payload
	size    int      // bytes in batches
	heavy   bool     // it has one batch, which is heavy, and a tag
	tag     tag
}

// tag is what a frame of one heavy batch tells of it, behind the batches.
type tag struct {
	flow uint64 // among the connections of the node that sends it; 0: nobody's
	cost uint64 // units of work that are expected
}

func appendTag(dst []byte, t tag) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, t.flow), t.cost)
}

// decodeRequests reads the payload of a write or read frame.
func decodeRequests(payload []byte) (requests, error) {
	c := wire.NewCursor(payload)
	n := c.Uvarint()
	q := requests{batches: c.List(maxEntryBatches)}
	for _, g := range q.batches {
		q.size += len(g)
	}
	if q.heavy = c.Len() > 0; q.heavy {
		q.tag = tag{c.Uvarint(), c.Uvarint()}
	}
	switch {
	case !c.Done() || len(q.batches) == 0 || q.heavy && len(q.batches) != 1:
		return requests{}, errors.New("a malformed request frame")
	case n > MaxBatchRequests || n < uint64(len(q.batches)):
		return requests{}, fmt.Errorf("a request frame that counts %d requests in %d batches", n, len(q.batches))
	case len(q.batches) > 1 && q.size > maxEntryBytes || q.size > MaxBatchBytes:
		return requests{}, fmt.Errorf("a request frame with %d bytes of requests", q.size)
	}
	q.count = int(n)
	return q, nil
}

// Each reply in a reply frame follows a byte that says what it is.
const (
	replyWhole  byte = iota
	replyTooBig      // the batch ran, or was a batch of reads, but its reply is left out
	replyNotRun      // the batch did not run, and never will: it is to be sent again. Only to who is able.
	lastReply   = replyNotRun
)

// appendReplies appends the payload of a reply frame that is done: the number of replies, and for each its kind and
// its bytes. Replies past most bytes, those that no longer fit into the frame, and nil are left out. notRun more batches did not run.
func appendReplies(dst []byte, replies [][]byte, notRun, most int) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(replies)+notRun))
	for i, r := range replies {
		behind := 2 * (len(replies) + notRun - i) // at least, for this one and those behind it when they are left out
		if r == nil || len(r) > most || len(dst)+len(r)+behind+maxEntryBatches*binary.MaxVarintLen64+16 > maxReplyFrame {
			dst = append(dst, replyTooBig, 0)
			continue
		}
		dst = append(binary.AppendUvarint(append(dst, replyWhole), uint64(len(r))), r...)
	}
	for range notRun {
		dst = append(dst, replyNotRun, 0)
	}
	return dst
}

// appendWork appends the work of the batches that ran, behind the replies, for who is able.
func appendWork(dst []byte, work []uint64) []byte {
	for _, w := range work {
		dst = binary.AppendUvarint(dst, w)
	}
	return dst
}

// answers are the payload of a reply frame that is done.
type answers struct {
	kinds   []byte
	replies [][]byte // slices of the payload, nil for those that were left out
	work    []uint64 // of the first batches, as far as it is told
}

// decodeReplies reads the payload of a reply frame that is done.
func decodeReplies(payload []byte) (answers, error) {
	malformed := errors.New("a malformed reply frame")
	c := wire.NewCursor(payload)
	n := c.Uvarint()
	if n > maxEntryBatches || n > uint64(c.Len()) {
		return answers{}, malformed
	}
	a := answers{kinds: make([]byte, n), replies: make([][]byte, n)}
	for i := range a.replies {
		kind := c.Byte()
		reply := c.Bytes()
		switch a.kinds[i] = kind; {
		case kind == replyWhole && !c.Failed():
			a.replies[i] = reply
		case kind > lastReply || len(reply) != 0:
			return answers{}, malformed
		}
	}
	for range n {
		if c.Len() == 0 {
			break
		}
		a.work = append(a.work, c.Uvarint())
	}
	if !c.Done() {
		return answers{}, malformed
	}
	return a, nil
}

// termReport is a node's answer to a confirm frame.
type termReport struct {
	term, lastIndex, applied uint64
}

func appendTermReport(dst []byte, t termReport) []byte {
	for _, v := range []uint64{t.term, t.lastIndex, t.applied} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return dst
}

func decodeTermReport(payload []byte) (termReport, error) {
	if len(payload) != 24 {
		return termReport{}, errors.New("a malformed term frame")
	}
	u := func(i int) uint64 { return binary.LittleEndian.Uint64(payload[i:]) }
	return termReport{u(0), u(8), u(16)}, nil
}

// appendCommit appends the payload of a confirm frame.
func appendCommit(dst []byte, term, commit uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, term), commit)
}

// decodeCommit reads the payload of a confirm frame. ok is false where there is none. What a later version says behind it is left alone.
func decodeCommit(payload []byte) (term, commit uint64, ok bool) {
	c := wire.NewCursor(payload)
	term, commit = c.Uvarint(), c.Uvarint()
	return term, commit, len(payload) > 0 && !c.Failed()
}
