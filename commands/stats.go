package commands

// Stats counts what a state holds, for INFO and metrics.
type Stats struct {
	Index                uint64
	ClockMs              int64
	Databases            []DatabaseStats // by number
	Expired              uint64          // keys expired since the state began
	Libraries, Functions int             // function libraries, and the functions in them
	Changes              uint64          // commands that changed something since the snapshot
	Scripts              int             // in the cache
	// runs of scripts and functions since the state was loaded, those of them that exceeded their
	// budgets, and their processor time by os.clock
	ScriptRuns, ScriptsStopped uint64
	ScriptSeconds              float64
	Notify                     NotifyFlags
	Memory, MaxMemory          int64 // what the data counts and may count, bytes; 0: no limit
	ScriptBytes, LibraryBytes  int   // memory of the scripts in the cache, and of libraries
	// commands of all nodes that wait for locks, grants that their nodes have not claimed yet
	LockWaiters, UnclaimedGrants int
	Leases                       int
	OnceRequests                 int    // requests that run once, whose replies are remembered
	RequestWork                  uint64 // how many times MaxRequestWork a request may do
	// keys that reads which this node ran looked up, since it was started
	Found, Missed uint64
}

// DatabaseStats counts the keys of a database.
type DatabaseStats struct {
	Keys, Volatile int
	MeanTTL        int64 // mean over the Volatile keys, ms
}
