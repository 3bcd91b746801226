// Package lua holds the Lua scripts that the scenario programs share. The Go
// program reads them from here; those of other languages read the .lua files
// beside this one, so that every client sends the same bytes.
package lua
