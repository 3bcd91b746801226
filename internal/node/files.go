package node

import (
	"fmt"
	"log/slog"
	"syscall"
)

// What lives here: how many connections the limit of open files allows. A node that has no file left for its log cannot append.

const (
	// reservedFiles are kept from clients: for the log, its snapshots, sockets and the runtime, and for the HTTP port.
	reservedFiles = 48 + webConnections
	// filesPerPeer are kept for each other member: Raft's connections and those for forwarding, in both directions.
	filesPerPeer = 12
	// expectedPeers are members that may come.
	expectedPeers = 2
)

// clientFiles raises the limit of open files to the hard one, and returns how many connections of clients it allows beside what the node needs itself. It
// fails where that is none.
func clientFiles(members int) (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, nil // nobody knows: no limit
	}
	if limit.Cur < limit.Max {
		raised := syscall.Rlimit{Cur: limit.Max, Max: limit.Max}
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised) == nil {
			limit = raised
		}
	}
	reserve := uint64(reservedFiles + filesPerPeer*max(members-1, expectedPeers))
	if limit.Cur <= reserve {
		return 0, fmt.Errorf("the limit of open files (ulimit -n) is %d, and this node needs at least %d", limit.Cur, reserve+1)
	}
	return int(min(limit.Cur-reserve, 1<<31-1)), nil
}

// warnOfFiles says that fewer clients fit than were asked for.
func warnOfFiles(log *slog.Logger, asked, most int) {
	if most > 0 && asked > most {
		log.Warn("maxclients was reduced, because the limit of open files is low: raise it (ulimit -n, LimitNOFILE=) for more", "asked", asked, "maxclients", most)
	}
}
