// Entries that are added once, whatever their producers send again: IDMP and IDMPAUTO of XADD, and
// XCFGSET, of Redis 8.6.

package commands

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/coordd/coordd/commands/keyspace"
)

// Errors of additions with an id of the producer's, and of XCFGSET.
const (
	errOnceTwice Error = "ERR IDMP/IDMPAUTO specified multiple times"
	errOnceID    Error = "ERR IDMP/IDMPAUTO can be used only with auto-generated IDs"
	errOnceEmpty Error = "ERR IDMP/IDMPAUTO needs a producer ID, and an idempotent ID, of 1 to " +
		"1024 bytes"
	errOnceDuration Error = "ERR IDMP-DURATION must be between 1 and 86400 seconds"
	errOnceMost     Error = "ERR IDMP-MAXSIZE must be between 1 and 10000 entries"
)

// maxOnceName is the longest name of a producer, and id of its own: what is remembered of others
// is compared with it.
const maxOnceName = 1024

// Costs of looking up an id of a producer, of remembering one, and of each pair that makes one.
const (
	onceLookWork = 20
	onceWork     = 400
	oncePairWork = 20
	onceBytes    = 8 // bytes hashed per unit
)

// onceArgs are IDMP or IDMPAUTO of XADD.
type onceArgs struct {
	asked        bool
	producer, id []byte // no id: it is made of the entry
}

// parse parses the option that args begin with, and returns how many more arguments it has.
func (a *onceArgs) parse(args [][]byte) (taken int, err error) {
	if a.asked {
		return 0, errOnceTwice
	}
	a.asked, a.producer, taken = true, args[1], 1
	if isWord(args[0], "IDMP") {
		a.id, taken = args[2], 2
	}
	for _, name := range args[1 : 1+taken] {
		if len(name) == 0 || len(name) > maxOnceName {
			return 0, errOnceEmpty
		}
	}
	return taken, nil
}

// done replies with the id of an entry that the producer has added already, if it has. s may be
// nil.
func (a *onceArgs) done(x *Call, s *keyspace.Stream, texts [][]byte) bool {
	if a.id == nil {
		a.id = x.contentID(texts)
	}
	if s == nil {
		x.Spend(onceWork)
		return false
	}
	_, counts, _ := s.Once()
	x.Spend(onceLookWork + 4*deep(counts.IDs))
	id, ok := s.FindOnce(a.producer, a.id, x.ClockMs)
	if !ok {
		x.Spend(onceWork + 80*deep(counts.IDs))
		return false
	}
	e, s := editStream(x, x.Args[1])
	s.CountDuplicate()
	x.DB().Noted(e, false)
	x.Out.BulkString(id.String())
	return true
}

// contentID returns an id of the names and values of an entry, whatever the order of the pairs.
func (x *Call) contentID(texts [][]byte) []byte {
	size := 0
	for _, t := range texts {
		size += len(t)
	}
	x.Spend(oncePairWork*len(texts)/2 + size/onceBytes)
	pairs := make([][]byte, 0, len(texts)/2)
	h := sha256.New()
	for pair := range slices.Chunk(texts, 2) {
		h.Reset()
		h.Write(binary.AppendUvarint(nil, uint64(len(pair[0]))))
		h.Write(pair[0])
		h.Write(pair[1])
		pairs = append(pairs, h.Sum(nil))
	}
	slices.SortFunc(pairs, bytes.Compare)
	h.Reset()
	for _, p := range pairs {
		h.Write(p)
	}
	return h.Sum(nil)[:16]
}

func xcfgset(x *Call) error {
	var config keyspace.OnceConfig
	for args := x.Args[2:]; len(args) > 0; args = args[2:] {
		if len(args) < 2 {
			return ErrSyntax
		}
		n, ok := ParseInt(args[1])
		switch {
		case isWord(args[0], "IDMP-DURATION"):
			if config.DurationS = n; ok && (n < 1 || n > keyspace.MaxOnceS) {
				return errOnceDuration
			}
		case isWord(args[0], "IDMP-MAXSIZE"):
			if config.Most = n; ok && (n < 1 || n > keyspace.MaxOnceMost) {
				return errOnceMost
			}
		default:
			return ErrSyntax
		}
		if !ok {
			return ErrNotInteger
		}
	}
	if config == (keyspace.OnceConfig{}) {
		return ErrSyntax
	}
	if _, err := existingStream(x, x.Args[1]); err != nil {
		return err
	}
	e, s := editStream(x, x.Args[1])
	s.ConfigureOnce(config)
	x.DB().Noted(e, false)
	x.Out.Status("OK")
	return nil
}
