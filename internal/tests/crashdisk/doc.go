// Package crashdisk is a disk in memory that loses power or returns errors at a chosen operation,
// and a file system in user space (FUSE) that shows it to processes.
//
// A Disk keeps two states: what processes see, and what is durable. Data of a file become durable
// by a sync of the file, names by a sync of their directory. As in the journal of a file system,
// operations on names become durable in their order: a sync of a directory includes whatever
// happened before the newest change in it, in other directories too. Nothing else becomes durable
// by itself, not even the name of a file that is synced. Permissions and times are not part of the
// model: they change at once.
//
// After a crash at an operation, Survivor is the disk as the next start finds it. What was not
// synced is kept, lost, or torn: sectors of the data and the first operations on names, by chance.
//
// A sync that fails with an error loses the data, as on Linux: the process still reads them, a
// later sync succeeds, and after a loss of power they are gone unless they were written again.
//
// The processes that use a mounted disk must not be the one that serves it: a page fault in a
// mapped file would wait for Go's collector, which waits for the page fault. For the same reason no
// command starts with exec.Cmd.Dir on a mounted disk.
package crashdisk
