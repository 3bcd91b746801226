// The bytes of the forwarding protocol: the hello, and frames with their batches.

package cluster

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/coordd/coordd/internal/wire"
)

// The first byte of a connection to the peer port says what it carries.
const (
	// followed by the target's id and incarnation and the dialer's cluster, each after its length
	// in one byte
	streamRaft    byte = 'R'
	streamForward byte = 'F'
	streamAdmin   byte = 'A'
)

// protocolVersion is the version of the forwarding protocol. A hello of another version is refused
// with a reason; the layout of a hello and its answer is fixed forever.
const protocolVersion = 1

const maxHello = 4096 // bytes

// hello is how each end introduces itself before the first frame.
type hello struct {
	version     uint64
	id          string
	clientAddr  string
	refusal     string // the acceptor's reason to refuse; empty: accepted
	peerAddr    string // where others reach the node; empty: an older version
	removed     bool   // refused because the dialer was removed from the cluster
	level       uint64 // the newest feature level that the node knows; 0: an older version
	incarnation string // identifies its data directory
	cluster     string // the cluster's id; empty: none for certain
	expects     string // the other end's incarnation as this node knows it; empty: unknown
	lostDisk    bool   // refused because the dialer has another incarnation than expected
	abilities   uint64 // what the node understands beyond the version; 0: an older version
	arch        string // processor architecture; empty: an older version
	tlsAddr     string // where clients reach the node over TLS; empty: nowhere
	release     string // the node's version of coordd; empty: an older one
	upMs        uint64 // how long it has been running
	zone        string // its availability zone; empty: unknown
	priority    uint64 // for leading; DefaultPriority: an older version
	traits      uint64 // what it is; 0: an older version
	to          string // the node that the hello is meant for; empty: whoever is there
	build       Build  // what the node was built from; empty: an older version
	wallMs      uint64 // its wall clock, ms since 1970; 0: an older version
}

const (
	traitLearner  = 1 << 0 // the node never becomes a voter
	traitAwaiting = 1 << 1 // it has no configuration and awaits one
	traitFresh    = 1 << 2 // its Raft has no term, so it never voted
	traitFounding = 1 << 3 // it is about to found a cluster, or to find that it must not
	traitAsking   = 1 << 4 // it only asks who is there
)

// isLearner reports whether the node never becomes a voter.
func (h *hello) isLearner() bool { return h.traits&traitLearner != 0 }

// abilityDryRun: the node accepts batches that may write among reads, and runs them up to the first
// request that would.
const abilityDryRun = 1 << 0

// abilityScheduling: a frame with one heavy batch carries its flow and predicted cost; answers to
// this node may say that a batch did not run, and carry the work of each.
const abilityScheduling = 1 << 1

// abilityLeaderless: the node accepts frameLeaderless.
const abilityLeaderless = 1 << 2

// abilityQuestions: the node accepts frameQuestion.
const abilityQuestions = 1 << 3

// abilitySums: the node accepts frameSums.
const abilitySums = 1 << 4

// abilityWalls: answers to confirm frames, to this node and of it, carry the wall clock.
const abilityWalls = 1 << 5

// ownAbilities are this version's.
const ownAbilities = abilityDryRun | abilityScheduling | abilityLeaderless | abilityQuestions |
	abilitySums | abilityWalls

// appendHello appends a length (u32, little endian) and the fields.
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
	dst = wire.AppendBytes(wire.AppendBytes(dst, h.tlsAddr), h.release)
	dst = wire.AppendBytes(binary.AppendUvarint(dst, h.upMs), h.zone)
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, h.priority), h.traits)
	dst = wire.AppendBytes(dst, h.to)
	for _, s := range []string{h.build.Go, h.build.Processor, h.build.Commit} {
		dst = wire.AppendBytes(dst, s)
	}
	dst = binary.AppendUvarint(dst, h.wallMs)
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
	if c.Len() > 0 {
		h.tlsAddr = c.Text()
	}
	if c.Len() > 0 {
		h.release, h.upMs = c.Text(), c.Uvarint()
	}
	h.priority = DefaultPriority
	if c.Len() > 0 {
		h.zone, h.priority, h.traits, h.to = c.Text(), c.Uvarint(), c.Uvarint(), c.Text()
	}
	if c.Len() > 0 {
		h.build = Build{Go: c.Text(), Processor: c.Text(), Commit: c.Text()}
	}
	if c.Len() > 0 {
		h.wallMs = c.Uvarint()
	}
	if c.Failed() {
		return h, errors.New("a malformed hello")
	}
	return h, h.check() // bytes after the known fields belong to a later version
}

// frameKind is what a frame carries.
type frameKind uint8

const (
	frameWrite frameKind = iota + 1 // batches of writes, to the leader
	frameRead                       // batches of reads, to the leader
	// the leader asks for the term. Payload: its term and commit index (uvarints); empty: an older
	// version
	frameConfirm
	frameReply // the answer to a write or read frame: status and replies
	// the answer to a confirm frame; statusNotTaken: the node is stopping, or not fit to lead
	frameTerm
	// a membership change or its answer, on a connection of its own
	frameAdmin
	// from a stopping node: what it has not answered on this connection did not run and never will
	frameDrained
	// the sender has no leader. Payload: a finding; no answer
	frameLeaderless
	// a question of the program, and its answer; statusNotTaken: there is none
	frameQuestion
	frameAnswer
	// what the sender's state hashes to. Payload: a sumsReport; no answer
	frameSums
	lastKind = frameSums
)

// frameStatus is the outcome of a write or read frame, common to all its batches.
type frameStatus uint8

const (
	statusDone     frameStatus = iota // ran; the replies follow
	statusNotTaken                    // did not run and never will here: reroute it
	statusUnknown                     // may or may not have run; the reason follows
	lastStatus     = statusUnknown
)

const (
	frameHeaderLen = 20
	// A frame of requests holds as much as an entry, or one batch with its lengths.
	maxRequestFrame = MaxBatchBytes + maxEntryBytes
	maxReplyFrame   = 1 << 30
	// maxBatchReply bounds a forwarded reply to one batch; the batch of a larger one gets an error.
	// The machine answers a batch with up to 64 MiB, plus some 100 bytes of error for each command
	// of a transaction that does not fit.
	maxBatchReply = 192 << 20
	// maxReadReplies is how many bytes of replies one frame of reads collects before the remaining
	// batches are left out.
	maxReadReplies = 64 << 20
	maxSmallFrame  = 64
	maxAdminFrame  = 1 << 20
)

// maxPayload bounds the payload of each kind, in bytes.
func maxPayload(kind frameKind) uint32 {
	switch kind {
	case frameWrite, frameRead:
		return maxRequestFrame
	case frameReply:
		return maxReplyFrame
	case frameAdmin:
		return maxAdminFrame
	case frameQuestion:
		return MaxQuestion
	case frameAnswer:
		return MaxAnswer
	case frameSums:
		return maxSumsFrame
	default:
		return maxSmallFrame
	}
}

// frame is one message. On the wire, little endian: payload length u32, CRC-32C of the payload u32,
// kind u8, status u8, zero u16, id u64, payload.
type frame struct {
	kind    frameKind
	status  frameStatus
	id      uint64
	payload []byte
}

// beginFrame returns a buffer for a header and a payload of about size bytes. endFrame completes
// it.
func beginFrame(size int) []byte {
	return make([]byte, frameHeaderLen, frameHeaderLen+size)
}

// endFrame fills in the header.
func endFrame(buf []byte, kind frameKind, status frameStatus, id uint64) []byte {
	payload := buf[frameHeaderLen:]
	binary.LittleEndian.PutUint32(buf, uint32(len(payload)))
	binary.LittleEndian.PutUint32(buf[4:], crc32.Checksum(payload, castagnoli))
	buf[8], buf[9], buf[10], buf[11] = byte(kind), byte(status), 0, 0
	binary.LittleEndian.PutUint64(buf[12:], id)
	return buf
}

// readFrame reads one frame. It allocates the payload in steps as data arrives, so that a false
// length costs nothing.
func readFrame(r *bufio.Reader) (frame, error) {
	var head [frameHeaderLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	f := frame{kind: frameKind(head[8]), status: frameStatus(head[9]),
		id: binary.LittleEndian.Uint64(head[12:])}
	size, sum := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:])
	switch {
	case f.kind == 0 || f.kind > lastKind || f.status > lastStatus || head[10] != 0 ||
		head[11] != 0:
		return frame{}, errors.New("a malformed frame header")
	case size > maxPayload(f.kind):
		return frame{}, fmt.Errorf("a frame of kind %d with %d bytes, the limit is %d", f.kind,
			size, maxPayload(f.kind))
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

// appendRequests appends the payload of a write or read frame: the counts of requests and batches,
// and the batches.
func appendRequests(dst []byte, count int, batches [][]byte) []byte {
	return wire.AppendList(binary.AppendUvarint(dst, uint64(count)), batches)
}

// requests is the payload of a write or read frame.
type requests struct {
	count   int
	batches [][]byte // slices of the payload
	size    int      // bytes in batches
	heavy   bool     // one heavy batch, with a tag
	tag     tag
}

// tag describes a heavy batch. It follows the batches.
type tag struct {
	flow uint64 // the connection on the sending node; 0: nobody's
	cost uint64 // predicted units of work
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
		return requests{}, fmt.Errorf("a request frame that counts %d requests in %d batches", n,
			len(q.batches))
	case len(q.batches) > 1 && q.size > maxEntryBytes || q.size > MaxBatchBytes:
		return requests{}, fmt.Errorf("a request frame with %d bytes of requests", q.size)
	}
	q.count = int(n)
	return q, nil
}

// Each reply in a reply frame is preceded by its kind.
const (
	replyWhole  byte = iota
	replyTooBig      // the batch ran, or was a read, but its reply is left out
	// the batch did not run and never will: resend it. Only for members with abilityScheduling
	replyNotRun
	lastReply = replyNotRun
)

// appendReplies appends the payload of a successful reply frame: the number of replies, and the
// kind and bytes of each. It leaves out nil, replies longer than most bytes, and those that no
// longer fit. notRun more batches did not run.
func appendReplies(dst []byte, replies [][]byte, notRun, most int) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(replies)+notRun))
	for i, r := range replies {
		// at least, for this one and those behind it when they are left out
		behind := 2 * (len(replies) + notRun - i)
		if r == nil || len(r) > most || len(dst)+len(r)+behind+
			maxEntryBatches*binary.MaxVarintLen64+16 > maxReplyFrame {
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

// appendWork appends, after the replies, the work of the batches that ran, for members with
// abilityScheduling.
func appendWork(dst []byte, work []uint64) []byte {
	for _, w := range work {
		dst = binary.AppendUvarint(dst, w)
	}
	return dst
}

// answers is the payload of a successful reply frame.
type answers struct {
	kinds   []byte
	replies [][]byte // slices of the payload, nil for those left out
	work    []uint64 // units of the first batches, possibly none
}

// decodeReplies reads the payload of a successful reply frame.
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
	wallMs                   uint64        // its wall clock, ms since 1970; 0: not told
	trouble                  logTrouble    // told with the wall clock alone
	pace                     time.Duration // how long its newest writes took; 0: not told
}

// appendTermReport appends the payload of a term frame. Only members with abilityWalls read one
// with a wall clock and what follows it.
func appendTermReport(dst []byte, t termReport) []byte {
	for _, v := range []uint64{t.term, t.lastIndex, t.applied} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	if t.wallMs == 0 {
		return dst
	}
	dst = binary.LittleEndian.AppendUint64(dst, t.wallMs)
	return binary.AppendUvarint(append(dst, byte(t.trouble)), uint64(t.pace))
}

// decodeTermReport reads the payload of a term frame. It ignores a later version's additions.
func decodeTermReport(payload []byte) (termReport, error) {
	c := wire.NewCursor(payload)
	t := termReport{term: c.Uint64(), lastIndex: c.Uint64(), applied: c.Uint64()}
	if c.Len() > 0 {
		t.wallMs = c.Uint64()
	}
	if c.Len() > 0 {
		t.trouble = logTrouble(c.Byte())
	}
	if c.Len() > 0 {
		t.pace = time.Duration(c.Uvarint())
	}
	if c.Failed() {
		return termReport{}, errors.New("a malformed term frame")
	}
	return t, nil
}

// appendFinding appends the payload of a frameLeaderless.
func appendFinding(dst []byte, f finding) []byte {
	dst = binary.AppendUvarint(binary.AppendUvarint(dst, f.term), f.lastIndex)
	return binary.AppendUvarint(dst, uint64(f.stores))
}

// decodeFinding reads the payload of a frameLeaderless. It ignores a later version's additions.
func decodeFinding(payload []byte) (finding, error) {
	c := wire.NewCursor(payload)
	f := finding{term: c.Uvarint(), lastIndex: c.Uvarint()}
	if c.Len() > 0 { // releases before 0.2 say no more
		f.stores = time.Duration(c.Uvarint())
	}
	if c.Failed() {
		return f, errors.New("a malformed leaderless frame")
	}
	return f, nil
}

// appendCommit appends the payload of a confirm frame.
func appendCommit(dst []byte, term, commit uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, term), commit)
}

// decodeCommit reads the payload of a confirm frame; ok is false if it is empty. It ignores a later
// version's additions.
func decodeCommit(payload []byte) (term, commit uint64, ok bool) {
	c := wire.NewCursor(payload)
	term, commit = c.Uvarint(), c.Uvarint()
	return term, commit, len(payload) > 0 && !c.Failed()
}
