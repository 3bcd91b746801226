// This file contains what package server shows of values beside the commands.

package commands

import "github.com/coordd/coordd/commands/keyspace"

// Encoding is what OBJECT ENCODING answers for an entry.
func Encoding(e *keyspace.Entry) string { return encoding(e) }
