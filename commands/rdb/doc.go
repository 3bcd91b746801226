// Package rdb reads and writes the pieces of Redis's RDB format that values of DUMP and FUNCTION
// DUMP consist of: lengths, strings, the compact forms of small collections, and the footer with
// version and checksum. It knows no keyspace; package commands puts the pieces together.
//
// Input may be hostile: readers fail rather than panic, and take no more memory than a caller's
// limit.
package rdb
