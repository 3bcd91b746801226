// Workload describes a batch to the backend, which predicts from it how much work the batch is.

package server

import (
	"math/bits"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/coordd/coordd/commands"
)

const hashStep = 0x9e3779b97f4a7c15

// workloadOf describes a command, or a transaction if there are several commands or spec is EXEC's:
// by command name or script, and by the first key.
func workloadOf(db int, spec *commands.Spec, cmds [][][]byte) Workload {
	spec, cmds = carried(spec, cmds)
	h := uint64(len(cmds))
	for _, args := range cmds[:min(len(cmds), 16)] {
		h = h*hashStep + xxhash.Sum64(args[0])
	}
	if len(cmds) == 0 {
		return Workload{Command: h | 1, Shape: h | 1}
	}
	args, first := cmds[0], 1
	if spec != nil && spec.Keys.First > 0 {
		// otherwise a pattern, or whatever stands in place of a key
		first = spec.Keys.First
	}
	if spec != nil && spec.Group == "scripting" && len(args) > 1 {
		h = h*hashStep + xxhash.Sum64(args[1]) // source, SHA1 or name
		first = spec.Keys.Numkeys + 1
	}
	load := Workload{Command: h | 1, Shape: h | 1}
	load.Light = isLight(spec)
	if first < len(args) {
		load.Shape = (h*hashStep+xxhash.Sum64(args[first]))*hashStep + uint64(db) | 1
	}
	return load
}

// carried returns the call that a call runs that it carries, or the call itself.
func carried(spec *commands.Spec, cmds [][][]byte) (*commands.Spec, [][][]byte) {
	if spec == nil || !spec.Keys.Carried || len(cmds) != 1 {
		return spec, cmds
	}
	spec, args := spec.Carried(cmds[0])
	return spec, [][][]byte{args}
}

// isLight reports whether a command does O(log n) work besides its bytes. What SET may do more is
// to free a value, which costs nobody anything at that moment.
func isLight(spec *commands.Spec) bool {
	return spec != nil && (spec.Flags&commands.Fast != 0 || spec.Name == "set")
}

// sized distinguishes batches, or calls, of different lengths.
func sized(load Workload, n int) Workload {
	size := uint64(bits.Len(uint(n)))
	load.Command, load.Shape = load.Command*hashStep+size<<1|1, load.Shape*hashStep+size<<1|1
	return load
}

// workload describes the current batch of count requests.
func (s *session) workload(count int) Workload {
	load := sized(s.batch.load, count)
	load.Conn, load.LeaderWait = s.id, s.leaderWait()
	return load
}

// leaderWait returns how long the session's requests wait for a leader, as in Workload.
func (s *session) leaderWait() time.Duration {
	ms := s.leaderWaitMs
	if ms < 0 {
		ms = s.srv.config.leaderWaitMs.Load()
	}
	switch {
	case ms < 0:
		return 0
	case ms == 0:
		return -1
	}
	return time.Duration(ms) * time.Millisecond
}

// localWorkload describes a command that the session answers itself.
func (s *session) localWorkload(spec *commands.Spec, args [][]byte) Workload {
	h := xxhash.Sum64String(spec.FullName()) | 1
	load := sized(Workload{Command: h, Shape: h}, len(args))
	load.Conn = s.id
	return load
}
