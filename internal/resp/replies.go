package resp

import (
	"errors"
	"fmt"
	"io"
)

// Replies reads what a server sends to a client that waits for replies alone. It skips pushes:
// others can have one sent to any connection, and each would be taken for a reply.
type Replies struct {
	in    *Reader
	began bool // a reply has begun
}

// NewReplies returns a reader of the replies in r. If r is a bufio.Reader, it is used as it is.
func NewReplies(r io.Reader, limits Limits) *Replies {
	return &Replies{in: NewReaderLimits(r, limits)}
}

// first explains an error in place of the first reply: the client may have a wrong port.
func (r *Replies) first(err error) error {
	switch {
	case r.began:
	case errors.Is(err, ErrMalformed):
		err = fmt.Errorf("no server for clients is there, perhaps an HTTP port: %w", err)
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("the connection was closed without a reply: a port for TLS needs an "+
			"address "+
			"rediss://host:port: %w", err)
	}
	r.began = r.began || err == nil
	return err
}

// Value reads a reply with all that belongs to it.
func (r *Replies) Value() (Value, error) {
	for {
		if v, err := r.in.Value(); err != nil || v.Kind != Push {
			return v, r.first(err)
		}
	}
}

// Head is Reader.Head for a reply.
func (r *Replies) Head() (Head, error) {
	for {
		h, err := r.in.Head()
		if err != nil || h.Kind != Push {
			return h, r.first(err)
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
