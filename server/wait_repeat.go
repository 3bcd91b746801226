// A repeat of a request that waits for a lock waits for the end of that one: it looks now and then
// whether it is there, by dry runs.

package server

import (
	"time"

	"github.com/coordd/coordd/commands"
)

// lookShare bounds how often the repeats of a node look, whose clients do nothing meanwhile: each
// takes so much of the time between two looks.
const lookShare = time.Millisecond

// repeats reports whether a command that waits is refused since an earlier request with its id is
// under way: it looks again, until that has ended or its own time is over.
func (b *blocked) repeats(replies commands.Replies) bool {
	if !b.spec.Claims() {
		return false
	}
	_, waits := commands.LockWait(b.request.Cmds[0])
	a, ok := replies.Next()
	b.behind = waits && ok && a.Err() == commands.ErrUnderWay
	if b.behind {
		if !b.repeated {
			b.repeated = true
			b.s.srv.repeating.Add(1)
		}
		b.look = time.Now().Add(max(leastLook,
			time.Duration(b.s.srv.repeating.Load())*lookShare))
	}
	return b.behind
}
