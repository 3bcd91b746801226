// Package script is the script engine of the replicated state machine: Lua in Redis's sandbox, the libraries that scripts
// see, the cache of EVAL, and function libraries. All of it is a pure function of the log.
package script
