package node

import (
	"fmt"
	"log/slog"
	"syscall"

	"github.com/coordd/coordd/server"
)

const (
	// reservedFiles are never used for clients, or the node could not append to its log: they are
	// for the log, snapshots, sockets, the runtime, the HTTP port and administrators.
	reservedFiles = 48 + webConnections + webLogins + webSessions + server.ReserveClients
	// filesPerPeer are reserved for each other member: connections of Raft and for forwarding, in
	// both directions.
	filesPerPeer = 12
	// expectedPeers is the number of peers to reserve files for before they join.
	expectedPeers = 2
)

// clientFiles raises the limit of open files to the hard limit and returns how many client
// connections it allows, 0 if it is unknown. It fails if it allows none.
func clientFiles(members int) (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, nil
	}
	if limit.Cur < limit.Max {
		raised := syscall.Rlimit{Cur: limit.Max, Max: limit.Max}
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised) == nil {
			limit = raised
		}
	}
	reserve := uint64(reservedFiles + filesPerPeer*max(members-1, expectedPeers))
	if limit.Cur <= reserve {
		return 0, fmt.Errorf(
			"the limit of open files (ulimit -n) is %d, this node needs at least %d", limit.Cur,
			reserve+1)
	}
	return int(min(limit.Cur-reserve, 1<<31-1)), nil
}

// warnOfFiles logs that fewer clients fit than configured.
func warnOfFiles(log *slog.Logger, asked, most int) {
	if most > 0 && asked > most {
		log.Warn("maxclients reduced to fit the limit of open files: raise it with ulimit -n or "+
			"LimitNOFILE=", "asked", asked, "maxclients", most)
	}
}
