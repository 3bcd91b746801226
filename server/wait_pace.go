// Commands that wait and look now and then whether there is something: repeats of a request that
// waits for a lock, and those that claim entries of streams.

package server

import (
	"time"

	"github.com/coordd/coordd/commands"
)

// mostLooks bounds how many looks an hour the waiting commands of a node make together: their
// clients do nothing meanwhile. Each look is a dry run.
const mostLooks = int64(1000 * time.Hour / time.Second)

// pace returns after which time a command looks that would look again and again after this one.
func (b *blocked) pace(wait time.Duration) time.Duration {
	own := int64(time.Hour / wait)
	all := b.s.srv.looks.Add(own - b.looksHourly)
	if b.looksHourly = own; all > mostLooks {
		return time.Duration(min(float64(wait)*float64(all)/float64(mostLooks), 1<<62))
	}
	return wait
}

// looksNoMore is the opposite of pace.
func (b *blocked) looksNoMore() {
	b.s.srv.looks.Add(-b.looksHourly)
	b.looksHourly = 0
}

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
		b.look = time.Now().Add(b.pace(leastLook))
	}
	return b.behind
}
