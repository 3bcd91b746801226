package server

// This file holds what the backend is told of a run besides its bytes, so that it can expect how much work it is: see Asker.

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"github.com/coordd/coordd/commands"
)

// hashStep mixes one hash into another.
const hashStep = 0x9e3779b97f4a7c15

// askerOf describes a command, or a transaction where there are several or spec is EXEC's: by its name, or the script, and by the first key.
func askerOf(db int, spec *commands.Spec, cmds [][][]byte) Asker {
	h := uint64(len(cmds))
	for _, args := range cmds[:min(len(cmds), 16)] {
		h = h*hashStep + xxhash.Sum64(args[0])
	}
	if len(cmds) == 0 {
		return Asker{Command: h | 1, Shape: h | 1}
	}
	args, first := cmds[0], 1
	if spec != nil && spec.Keys.First > 0 { // else a pattern, or what stands in the place of a key
		first = spec.Keys.First
	}
	if spec != nil && spec.Group == "scripting" && len(args) > 1 {
		h = h*hashStep + xxhash.Sum64(args[1]) // the source, the SHA1, the name
		first = spec.Keys.Numkeys + 1
	}
	by := Asker{Command: h | 1, Shape: h | 1}
	if first < len(args) {
		by.Shape = (h*hashStep+xxhash.Sum64(args[first]))*hashStep + uint64(db) | 1
	}
	return by
}

// sized tells runs, or calls, of different lengths apart.
func (by Asker) sized(n int) Asker {
	size := uint64(bits.Len(uint(n)))
	by.Command, by.Shape = by.Command*hashStep+size<<1|1, by.Shape*hashStep+size<<1|1
	return by
}

// asks describes the run that goes to the backend, of so many requests.
func (s *session) asks(count int) Asker {
	by := s.batch.by.sized(count)
	by.Source = s.id
	return by
}

// asksLocally describes a command that the session answers.
func (s *session) asksLocally(spec *commands.Spec, args [][]byte) Asker {
	h := xxhash.Sum64String(spec.FullName()) | 1
	by := Asker{Command: h, Shape: h}.sized(len(args))
	by.Source = s.id
	return by
}
