// The ids of connections: unique in the cluster, for ever. Within a process connections have
// numbers, from 1. The machine gives the process blocks of ids for them, so that the id is known
// when a client asks for it (docs/adr/0063).

package server

import (
	"slices"
	"time"

	"github.com/coordd/coordd/commands"
	"github.com/coordd/coordd/internal/lockorder"
)

// idWait is how long a client waits for the first block of a node that has just started.
const idWait = 2 * time.Second

// clientIDs are the blocks of commands.ClientIDBlock ids that this process has.
type clientIDs struct {
	mu      lockorder.Mutex
	blocks  []uint64 // their first ids, in the order of use, which ascends
	plain   uint64   // the highest number that a client was told as an id
	running bool     // fetchIDs runs
}

// of returns the id of the connection with a number. unique is false if the process has no block
// for it yet: then its number is its id.
func (ids *clientIDs) of(number uint64) (id uint64, unique bool) {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	block, place := (number-1)/commands.ClientIDBlock, (number-1)%commands.ClientIDBlock
	if block >= uint64(len(ids.blocks)) {
		return number, false
	}
	return ids.blocks[block] + place, true
}

// tell is of for what a client is told. It may know a connection by its number from then on.
func (ids *clientIDs) tell(number uint64) (id uint64) {
	id, unique := ids.of(number)
	if !unique {
		ids.mu.Lock()
		defer ids.mu.Unlock()
		ids.plain = max(ids.plain, number)
	}
	return id
}

// lacks reports whether connections of the process have no ids yet.
func (ids *clientIDs) lacks(srv *Server) bool {
	srv.mu.Lock()
	newest := srv.nextID
	srv.mu.Unlock()
	_, unique := ids.of(newest)
	return newest > 0 && !unique
}

// number returns which number the connection with an id has; 0: it is none of this process, or of
// none that a client may know by it.
func (ids *clientIDs) number(id uint64) uint64 {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	if id < commands.FirstClientID {
		if len(ids.blocks) > 0 && id > ids.plain {
			return 0
		}
		return id
	}
	block, first := slices.BinarySearch(ids.blocks, id)
	if !first {
		block--
	}
	if block < 0 || id-ids.blocks[block] >= commands.ClientIDBlock {
		return 0
	}
	return uint64(block)*commands.ClientIDBlock + id - ids.blocks[block] + 1
}

// reserve asks for a block long before connections with numbers above this one need it.
func (ids *clientIDs) reserve(srv *Server, number uint64) {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	needed := (number-1+commands.ClientIDBlock/2)/commands.ClientIDBlock + 1
	if needed > uint64(len(ids.blocks)) && !ids.running {
		ids.running = srv.inBackground(srv.fetchIDs)
	}
}

// fetchIDs gets a block, as soon as there is a leader, and every node knows of blocks. One that was
// given without an answer is nobody's.
func (s *Server) fetchIDs() {
	ids := &s.clientIDs
	for pause := firstPause; s.ctx.Err() == nil; pause = s.rest(pause) {
		if s.backend.Level() < commands.LevelSecond {
			continue
		}
		first, err := s.askState(Workload{}, []byte(commands.SystemClientIDs))
		if err != nil {
			continue
		}
		ids.mu.Lock()
		ids.blocks = append(ids.blocks, first)
		ids.running = false
		ids.mu.Unlock()
		return
	}
}

// clientID returns the connection's id. On a node that has just started it may wait, but not for a
// leader before the node has ever heard of one.
func (s *session) clientID() int64 {
	unique := func() bool {
		_, unique := s.srv.clientIDs.of(s.id)
		return unique || s.srv.backend.Level() < commands.LevelSecond || s.srv.users() == nil
	}
	s.awaitNode(time.Now().Add(idWait), unique)
	return int64(s.srv.clientIDs.tell(s.id))
}

// connection returns the session with an id, or nil.
func (s *Server) connection(id uint64) *session { return s.session(s.clientIDs.number(id)) }

// first returns the smallest id that a connection of the process may have, 0 if none has one yet.
func (ids *clientIDs) first() uint64 {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	if len(ids.blocks) == 0 {
		return 0
	}
	return ids.blocks[0]
}
