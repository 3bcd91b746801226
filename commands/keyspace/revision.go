package keyspace

// Revision says when a change was made: epoch (10 bits), index of the log entry (41 bits), position
// of the command in the entry (12 bits). Later changes have larger revisions, across failovers and
// restarts; a restore or recovery goes on at the time of day (docs/adr/0057). It fits a signed
// 64-bit integer and, in epoch 0, a double, which scripts and JavaScript clients store it in.
type Revision uint64

// MaxPosition is the last position in an entry, which carries at most MaxPosition+1 commands.
const MaxPosition = 1<<positionBits - 1

// MaxEpoch is the last epoch.
const MaxEpoch = 1<<epochBits - 1

const (
	epochBits    = 10
	positionBits = 12
	indexBits    = 41
)

// NewRevision composes a revision of epoch, index of the log entry, and position of the command in
// it. An index that outgrows its bits goes on in the next epoch.
func NewRevision(epoch, index, position uint64) Revision {
	return Revision((epoch<<indexBits+index)<<positionBits | position)
}

// Entry returns the epoch and the index of the log entry.
func (r Revision) Entry() (epoch, index uint64) {
	at := uint64(r) >> positionBits
	return at >> indexBits, at & (1<<indexBits - 1)
}
