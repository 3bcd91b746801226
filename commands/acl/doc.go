// Package acl holds users and what they may do, as Redis 7.0's access control lists.
//
// A [Users] is an immutable set of users: a change returns another set. So the machine, reads and
// sessions share one without locks. The same holds for a [User].
//
// A user keeps the rules that it was given, in order, except for those that later ones override.
// What the rules allow follows from the [Catalog]: the commands that a machine of a feature level
// knows, with their categories. When the level rises, the users are derived again from their rules
// ([Users.In]), and a user with +@read may run a command that the new level adds to @read. So the
// state does not depend on the commands that a release happens to have.
//
// Snapshots and files hold the rules that users keep ([Users.AppendTo], [Users.File]), and give
// back equal users: the rules that are kept stay the same when they are given again. [User.String]
// is the line of ACL LIST: like Redis 7.0 it derives the shortest categories and commands from what
// the rules allow.
//
// The package knows nothing of arguments: package commands finds the keys and channels of a call
// and asks [User.Check].
package acl
