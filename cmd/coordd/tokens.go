// Where the fencing tokens of a cluster go on that is restored or recovered.

package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/coordd/coordd/commands/keyspace"
)

// tokensVar adds the flag --tokens-above, 0 if it is not given.
func tokensVar(flags *pflag.FlagSet, above *uint64, more string) {
	flags.Uint64Var(above, "tokens-above", 0,
		"all fencing tokens of the new cluster are larger than this"+more+
			"; default: the time of day, seconds since 1970 shifted left by 31 bits")
}

// tokenState is a state that is restored or recovered.
type tokenState interface {
	NextStart(nowUs int64) (start keyspace.Revision, behindUs int64)
	ContinueAbove(start keyspace.Revision) (index, term uint64, err error)
}

// tokensAbove returns the number above which tokens go on, and why all before are smaller: what was
// given, or, if that is 0, by the clock.
func tokensAbove(given uint64, state tokenState) (start keyspace.Revision, why string, err error) {
	if given != 0 {
		return keyspace.Revision(given), "as --tokens-above says", nil
	}
	now := time.Now()
	start, behindUs := state.NextStart(now.UnixMicro())
	why = fmt.Sprintf("by this machine's clock, %s", now.UTC().Format(time.RFC3339))
	if behindUs > 0 {
		return 0, "", fmt.Errorf("where fencing tokens go on is unknown: %s, and the data is %v "+
			"later; set the clock, or give --tokens-above, a number that no token has reached, "+
			"at least %d", why, time.Duration(behindUs)*time.Microsecond, start)
	}
	return start, why, nil
}

// continueAbove is ContinueAbove of the state.
func continueAbove(state tokenState, start keyspace.Revision) (index, term uint64, err error) {
	if index, term, err = state.ContinueAbove(start); err != nil {
		err = fmt.Errorf("--tokens-above %d: %w", start, err)
	}
	return index, term, err
}
