// Package keyspace holds the data: sixteen databases of keys with their values, deadlines and
// revisions.
//
// It knows no command and no clock. The machine sets the time and the revision of changes entry by
// entry (Begin, SetRevision). Everything visible from outside comes from sorted structures, so
// machines that apply the same entries hold the same bytes.
//
// Snapshots are taken while writes continue. The index of keys is copy-on-write: Freeze copies its
// directory and starts a new generation. A running snapshot may read an entry of an older
// generation, so Edit clones such an entry before it changes.
package keyspace
