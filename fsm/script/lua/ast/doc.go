// Package ast declares the syntax tree of Lua 5.1, between the parser and the compiler.
package ast
