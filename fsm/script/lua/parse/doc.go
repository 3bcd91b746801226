// Package parse reads Lua 5.1 source into a syntax tree. The parser is generated from parser.go.y.
package parse
