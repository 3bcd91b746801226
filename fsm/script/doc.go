// Package script runs the scripts of EVAL and the functions of FCALL: Lua 5.1 in Redis's sandbox.
//
// An [Engine] implements commands.Scripts. It holds replicated state: the cache of scripts that
// EVALSHA finds, and the function libraries. [Engine.AppendTo] and [Engine.Restore] write it into a
// snapshot and read it back. An engine does not know the machine that owns it. A call brings all
// that a script needs: the keyspace, the clock, the seed of math.random, the feature level and the
// work that is left (commands.Call and commands.Env). A script runs in an interpreter, which is one
// Lua state (package fsm/script/lua). redis.call finds the command in the command table and calls
// its handler; its reply becomes Lua values without being encoded. Entries share one interpreter.
// Reads, which run concurrently, take theirs from a pool. No script sees what another left behind:
// globals and libraries are read-only, and what the libraries remember ends with the run.
//
// Limits are counts of instructions and bytes, so every node stops a script at the same place. The
// work of the commands that a script calls counts too.
//
// [Engine.DryRun] is the engine for reads and dry runs, which do not change it: a script that would
// change something stops there, and no pcall catches that.
//
// The files lib_*.go are the libraries: Lua's own, redis, cjson, cmsgpack, struct and bit. They are
// written for this engine, because Redis's are in C and gopher-lua's differ in error texts, cost
// and order.
package script
