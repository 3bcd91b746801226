// Package lua is the Lua 5.1 of coordd's scripts: a fork of the compiler and the virtual machine of
// gopher-lua v1.1.2 (Copyright (c) 2015 Yusuke Inuzuka, MIT license, see LICENSE beside this file),
// cut down to what scripts need and changed in what a replicated machine must promise.
// docs/adr/0014 says why it is here.
//
// What was changed:
//   - A script has a Budget: each instruction takes one unit of it, work that grows with a string's
//     length or a number of values takes more where it is done, and all memory that a script keeps
//     is charged when it is allocated. All are counts, the same on every node. Once a budget is
//     spent each further charge raises again, so no pcall outlives it.
//   - Tables keep their keys in the order of insertion, and can be read-only.
//   - Open upvalues are a sorted list: finding one and closing some do not walk over those of other
//     calls.
//   - The compiler is linear in the length of the source, bounds how deep it recurses, and keeps no
//     names that only a debugger needs.
//   - Numbers are read and written as C Lua does. Errors are in C Lua's words.
//   - There is no io, os, debug, package, channel or context, nothing reads a clock, nothing starts
//     a goroutine.
package lua
