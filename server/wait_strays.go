// Waits in the machine that no client of this node has: those of an earlier process, and those
// whose requests ran behind the request to leave, as they can if a connection to the leader breaks.

package server

import "time"

// strayPeriod is the time between two looks for them.
const strayPeriod = time.Second

// leaveStrays has the machine forget what nobody waits for. What this process has sent it must find
// so twice: it gives up what a wait was granted, and that could have been told to a client between
// the look at the machine and that at the clients. It returns false if the node has not caught up.
func (s *Server) leaveStrays() bool {
	if s.users() == nil {
		return false
	}
	own, first, m := s.backend.OwnWaits(), s.backend.FirstWait(), &s.machineWaits
	m.mu.Lock()
	defer m.mu.Unlock()
	leaves := make(map[uint64]struct{}, len(m.left)) // where clients come and go, some always do
	for _, number := range m.left {
		leaves[number] = struct{}{}
	}
	before := m.strays
	m.strays = nil
	for _, number := range own {
		_, again := before[number]
		_, left := leaves[number]
		switch {
		case left:
		case !m.sent(first, number) || again:
			m.left = append(m.left, number)
		case m.waiting[number] == nil:
			if m.strays == nil {
				m.strays = map[uint64]struct{}{}
			}
			m.strays[number] = struct{}{}
		}
	}
	s.startLeaving()
	return true
}
