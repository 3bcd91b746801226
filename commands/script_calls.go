package commands

import "strings"

// ScriptCount is how often scripts called a command.
type ScriptCount struct {
	Spec     *Spec
	Calls    uint64 // those that ran
	Failed   uint64 // Calls whose reply was an error
	Rejected uint64 // those that did not run
	Work     uint64 // what Calls did, in units of Env.Work
}

// ScriptCalls counts the commands that scripts call, for the node alone.
type ScriptCalls struct {
	On     bool // somebody wants to know
	Counts []ScriptCount
	// Errors are how many errors of commands scripts got, by code word, without those that became
	// the scripts' own replies.
	Errors map[string]int
	// by Spec.place: where in Counts a command is, from 1 on; 0: it is not
	at []uint16
}

// of returns the counts of a command.
func (c *ScriptCalls) of(spec *Spec) *ScriptCount {
	if more := spec.place + 1 - len(c.at); more > 0 {
		c.at = append(c.at, make([]uint16, more)...)
	}
	at := &c.at[spec.place]
	if *at == 0 {
		c.Counts = append(c.Counts, ScriptCount{Spec: spec})
		*at = uint16(len(c.Counts))
	}
	return &c.Counts[*at-1]
}

// Forget drops all counts, and keeps their memory.
func (c *ScriptCalls) Forget() {
	for i := range c.Counts {
		c.at[c.Counts[i].Spec.place] = 0
	}
	c.Counts = c.Counts[:0]
	clear(c.Errors)
}

// Erred counts an error that a script got, or with -1 one that is its reply.
func (c *ScriptCalls) Erred(line string, n int) {
	if !c.On {
		return
	}
	if c.Errors == nil {
		c.Errors = map[string]int{}
	}
	word, _, _ := strings.Cut(line, " ")
	before, known := c.Errors[word]
	switch n += before; {
	case n == 0:
		delete(c.Errors, word)
	case known:
		c.Errors[word] = n
	default:
		c.Errors[strings.Clone(word)] = n // the line may be long
	}
}

// Ran counts a call that ran.
func (c *ScriptCalls) Ran(spec *Spec, work uint64, failed bool) {
	if !c.On {
		return
	}
	n := c.of(spec)
	n.Calls++
	n.Work += work
	if failed {
		n.Failed++
	}
}

// Rejected counts a call that did not run.
func (c *ScriptCalls) Rejected(spec *Spec) {
	if c.On {
		c.of(spec).Rejected++
	}
}
