package commands

// Overseer measures how long scripts really take. That is no part of the state: what it measures
// differs between nodes, and it ends only what no log has.
type Overseer interface {
	// Watch returns the stopwatch of a script that has worked for a while.
	Watch() Stopwatch
	// Slow receives a script that took far longer than its work should, when it has ended. It must
	// not block.
	Slow(s SlowScript)
}

// Stopwatch measures one script, on the goroutine that runs it.
type Stopwatch interface {
	// Look is called from time to time. By true it ends the script.
	Look() (late bool)
	// Stop ends the measurement. It returns the processor time that the script took, ms, or 0 if
	// that is no more than its work may take.
	Stop() (tookMs int64)
}

// SlowScript is a script that took far longer than its work should.
type SlowScript struct {
	ID     string // the SHA1 of a script, or that of a library, a colon and a function's name
	Source string // its beginning, or that of the library
	TookMs int64  // processor time
	Ended  bool   // a read or a dry run: it was ended, and has changed nothing
}

// ScriptVerdict is what the machine remembers of a slow script.
type ScriptVerdict struct {
	ID      string // that of SlowScript
	TookMs  int64
	Allowed bool // by an operator; otherwise it is refused
}
