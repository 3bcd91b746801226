// Package logdisk is a disk in memory for tests of logs and of the files beside them: unsynced data
// can be kept, lost or torn, and each step can fail. It also has what tests put into logs, and the
// bits that they change.
package logdisk
