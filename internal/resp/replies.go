package resp

import "io"

// Replies reads what a server sends to a client that waits for replies alone. It skips pushes:
// others can have one sent to any connection, and each would be taken for a reply.
type Replies struct{ in *Reader }

// NewReplies returns a reader of the replies in r. If r is a bufio.Reader, it is used as it is.
func NewReplies(r io.Reader, limits Limits) *Replies { return &Replies{NewReaderLimits(r, limits)} }

// Value reads a reply with all that belongs to it.
func (r *Replies) Value() (Value, error) {
	for {
		if v, err := r.in.Value(); err != nil || v.Kind != Push {
			return v, err
		}
	}
}

// Head is Reader.Head for a reply.
func (r *Replies) Head() (Head, error) {
	for {
		h, err := r.in.Head()
		if err != nil || h.Kind != Push {
			return h, err
		}
		for range h.elements() {
			if _, err := r.in.Skip(); err != nil {
				return Head{}, inside(err, true)
			}
		}
	}
}

// Text is Reader.Text.
func (r *Replies) Text(h Head) io.Reader { return r.in.Text(h) }
