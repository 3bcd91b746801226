// The value of FUNCTION DUMP and FUNCTION RESTORE, in the RDB format of Redis, version 10, so
// libraries move between coordd and Redis in both directions. Each library is a type byte and its
// source as a string.

package commands

import (
	"iter"

	"github.com/coordd/coordd/commands/rdb"
)

const (
	dumpVersion = 10
	dumpLibrary = 0xf5 // starts a library
	dumpRC      = 0xf6 // started one in the release candidates of Redis 7.0
)

// Errors of FUNCTION RESTORE on its value; the first also of RESTORE.
const (
	errDump        Error = "ERR DUMP payload version or checksum are wrong"
	errDumpType    Error = "ERR given type is not a function"
	errDumpRC      Error = "ERR Pre-GA function format not supported"
	errDumpLibrary Error = "ERR Failed loading library payload"
)

// dumpLibraries encodes the value of FUNCTION DUMP.
func dumpLibraries(libraries []*Library) []byte {
	var b []byte
	for _, l := range libraries {
		b = rdb.AppendText(append(b, dumpLibrary), l.Source)
	}
	return rdb.Seal(b, dumpVersion)
}

// dumpedSources iterates over the sources in a value of FUNCTION DUMP. An error comes last. It
// fails at once if the version or the checksum is wrong.
func dumpedSources(value []byte) (iter.Seq2[[]byte, error], error) {
	body, ok := rdb.Open(value, dumpVersion)
	if !ok {
		return nil, errDump
	}
	return func(yield func([]byte, error) bool) {
		r := rdb.NewReader(value, MaxScriptBytes) // with the footer, as on Redis
		for r.Len() > len(value)-len(body) {
			source, err := dumpedLibrary(r)
			if !yield(source, err) || err != nil {
				return
			}
		}
	}, nil
}

func dumpedLibrary(r *rdb.Reader) (source []byte, err error) {
	switch r.Byte() {
	case dumpLibrary:
	case dumpRC:
		return nil, errDumpRC
	default:
		return nil, errDumpType
	}
	r.Room = MaxScriptBytes
	if source = r.Text(); r.Failed() {
		return nil, errDumpLibrary
	}
	return source, nil
}
