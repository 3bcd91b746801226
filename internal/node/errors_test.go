package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coordd/cluster"
	"github.com/coordd/coordd/server"
)

// The code word that the client sees and the outcome that the server goes by agree for every error
// of the cluster.
func TestReplyError(t *testing.T) {
	for _, c := range []struct {
		err     error
		outcome server.Outcome
		reply   string
	}{
		{cluster.ErrBusy, server.NotRun, "TRYAGAIN the command did not run: "},
		{cluster.ErrLoading, server.NotRun, "LOADING the command did not run: "},
		{cluster.ErrNotRun, server.NoLeader, "CLUSTERDOWN the command did not run: "},
		{cluster.ErrRefused, server.Refused, "ERR "},
		{cluster.ErrTooLarge, server.Refused, "ERR the command did not run: "},
		{cluster.ErrUnknown, server.Unknown, "UNKNOWN the command may or may not have run: "},
		{errors.New("disk"), server.Unknown, "UNKNOWN the command may or may not have run: "},
	} {
		var got *server.Error
		err := replyError(fmt.Errorf("a reason: %w", c.err))
		if !errors.As(err, &got) || got.Outcome != c.outcome ||
			!strings.HasPrefix(got.Reply, c.reply) {
			t.Errorf("%v became %+v, want outcome %d and %q", c.err, err, c.outcome, c.reply)
		}
	}
	if err := replyError(nil); err != nil {
		t.Errorf("no error became %v", err)
	}
}
