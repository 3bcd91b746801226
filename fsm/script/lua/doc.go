// Package lua runs the Lua 5.1 of coordd's scripts. It is a fork of the compiler and the virtual
// machine of gopher-lua v1.1.2 (Copyright (c) 2015 Yusuke Inuzuka, MIT license, see LICENSE beside
// this file), reduced to what scripts need and adapted to a replicated machine. docs/adr/0014 gives
// the reasons.
//
// The fork differs from gopher-lua in this:
//   - A script has a [Budget] of work and memory. Each instruction costs one unit. Work that grows
//     with a string's length or a number of values costs more where it is done, and memory is
//     charged when it is allocated. All are counts, the same on every node. Once a budget is spent,
//     each further charge raises again, so no pcall outlives it.
//   - Tables keep their keys in insertion order, and can be read-only.
//   - Open upvalues are a sorted list: finding and closing them does not walk over those of other
//     calls.
//   - The compiler is linear in the length of the source, bounds its recursion, and keeps no names
//     that only a debugger needs.
//   - Numbers are read and written as in C Lua, and errors have C Lua's texts.
//   - There is no io, os, debug, package, channel or context. Nothing reads a clock or starts a
//     goroutine.
package lua
