package lua

import "embed"

// Files has every .lua file of this directory, by its base name.
//
//go:embed *.lua
var Files embed.FS
