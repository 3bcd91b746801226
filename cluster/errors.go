// Errors that callers see, each with what it says about whether a request ran.

package cluster

import (
	"errors"

	"github.com/hashicorp/raft"
)

// Outcomes of a request without a reply. Test with errors.Is; the text is the reason.
var (
	// ErrNotRun: the request did not run and never will.
	ErrNotRun = errors.New("the request did not run")
	// ErrLoading: the node is still replaying its log. It is an ErrNotRun.
	ErrLoading = notRun("this node is replaying its log")
	// ErrUnknown: the write may have run, or may still run.
	ErrUnknown = errors.New("the request may or may not have run")
	// ErrBusy: this node's queue is full. It is an ErrNotRun.
	ErrBusy = notRun("the queue of requests for the leader is full; retry later")
	// ErrRefused: a membership change was refused; nothing changed.
	ErrRefused = errors.New("the change was refused")
	// ErrTooLarge: the request, or the reply to a read, exceeds a limit; it did not run and never
	// will.
	ErrTooLarge = errors.New("the request is too large")
)

// outcomeError is a reason with its certainty.
type outcomeError struct {
	certainty error
	reason    string
}

func (e *outcomeError) Error() string { return e.reason }
func (e *outcomeError) Unwrap() error { return e.certainty }

func notRun(reason string) error   { return &outcomeError{ErrNotRun, reason} }
func unknown(reason string) error  { return &outcomeError{ErrUnknown, reason} }
func refused(reason string) error  { return &outcomeError{ErrRefused, reason} }
func tooLarge(reason string) error { return &outcomeError{ErrTooLarge, reason} }

var (
	errNoLeader      = notRun("no leader is known")
	errStopping      = notRun("this node is stopping")
	errWithdrawn     = notRun("the request was canceled before it was sent")
	errAbandoned     = unknown("the request was canceled while in flight")
	errLinkLost      = unknown("the connection to the leader was lost with the request in flight")
	errLeaderChanged = unknown("the leader changed with the request in flight")
	errNoAnswer      = unknown("the leader did not answer in time")
	errOverloaded    = error(&outcomeError{ErrBusy,
		"this node is overloaded: the request waited too long"})
	errNoReply  = unknown("the entry was applied without a reply")
	errBigReply = unknown(
		"the write ran, but its reply is too large to forward; ask the leader")
	errReadBigReply = tooLarge("the reply is too large to forward; ask the leader")
)

// neverLogged reports whether err, the answer to a proposal, says that the entry never entered any
// log. From the source of hashicorp/raft v1.7.3: ErrNotLeader answers a proposal in the follower
// and candidate loops, and in the leader loop once a committed configuration has removed this node,
// each time instead of dispatchLogs; ErrLeadershipTransferInProgress likewise; ErrEnqueueTimeout
// when the main loop never took it.
//
// Not among them: ErrLeadershipLost (the entry was in flight and the next leader may commit it), an
// error of StoreLogs (part of it may be on disk), ErrRaftShutdown (it also answers committed
// entries), ErrAbortedByRestore.
func neverLogged(err error) bool {
	return errors.Is(err, raft.ErrNotLeader) ||
		errors.Is(err, raft.ErrLeadershipTransferInProgress) ||
		errors.Is(err, raft.ErrEnqueueTimeout)
}
