package keyspace

// Revision says when a change was made: epoch (10 bits), index of the log entry (41 bits), position
// of the command in its batch (12 bits). Later changes have larger revisions, across failovers and
// restarts; a restored backup raises the epoch. It fits a signed 64-bit integer, and in the first
// epoch a double, which is what a script or a JavaScript client holds it in.
type Revision uint64

// MaxPosition is the last position of a batch: an entry carries at most MaxPosition+1 commands.
const MaxPosition = 1<<positionBits - 1

// MaxEpoch is the last epoch that a revision has room for.
const MaxEpoch = 1<<epochBits - 1

const (
	epochBits    = 10
	positionBits = 12
	indexBits    = 41
)

// NewRevision composes a revision. index is the position of the entry in the log, position that of
// the command in the entry.
func NewRevision(epoch, index, position uint64) Revision {
	return Revision(epoch<<(indexBits+positionBits) | index<<positionBits | position)
}
