package trace

// Kind is what a node has done.
type Kind string

// The kinds, and which fields of Event they use besides Node.
const (
	Starts    Kind = "starts"    // its disk has entries up to Index, Term, and a vote in Now
	Enters    Kind = "enters"    // its disk has Term
	Votes     Kind = "votes"     // its disk has a vote in Term
	Grants    Kind = "grants"    // Peer, whose log ends with Index, gets its vote in Term
	Leads     Kind = "leads"     // in Term
	Logs      Kind = "logs"      // Raft takes the entries First to Index, of Term, for stored
	Stores    Kind = "stores"    // its disk has the entries First to Index, of Term
	Cuts      Kind = "cuts"      // its log ends at Index now
	Restores  Kind = "restores"  // its machine has a snapshot, which ends with Index, of Term
	Confirms  Kind = "confirms"  // it answers a leader that it has what that has up to Index
	Tells     Kind = "tells"     // it tells a follower that the entries up to Index are committed
	Applies   Kind = "applies"   // its machine has the entry Index, of Term; Now is its own term
	Asks      Kind = "asks"      // a read begins, whose first question is Question, in Term
	Answered  Kind = "answered"  // Peer, which is in Term, has answered Question
	Confirmed Kind = "confirmed" // Need answers to Question are enough, and there are so many
	Reads     Kind = "reads"     // the read of Question returns what is committed up to Index
)

// Event is one of them. Who records it has done it, but for Logs, Asks and the answers, which it is
// about to act on.
type Event struct {
	Node     string `json:"node"`
	Kind     Kind   `json:"kind"`
	Peer     string `json:"peer,omitempty"`
	Term     uint64 `json:"term,omitempty"`
	Now      uint64 `json:"now,omitempty"`
	First    uint64 `json:"first,omitempty"`
	Index    uint64 `json:"index,omitempty"`
	Question uint64 `json:"question,omitempty"`
	Need     int    `json:"need,omitempty"`
	// At is when it was recorded, ns of a clock of all processes of a machine.
	At int64 `json:"at,omitempty"`
}

// To receives events, on many goroutines; nil: nobody does.
type To func(Event)

// Record passes on an event.
func (t To) Record(e Event) {
	if On && t != nil {
		t(e)
	}
}
