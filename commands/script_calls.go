package commands

// ScriptCount is how often scripts called a command.
type ScriptCount struct {
	Spec     *Spec
	Calls    uint64 // those that ran
	Failed   uint64 // of Calls: the reply was an error
	Rejected uint64 // those that did not run
	Work     uint64 // of Calls, in units of Env.Work
}

// ScriptCalls counts the commands that scripts call, for the node alone. A script calls few
// different commands: they are found by going through them.
type ScriptCalls struct {
	On     bool // somebody wants to know
	Counts []ScriptCount
}

// of returns the counts of a command.
func (c *ScriptCalls) of(spec *Spec) *ScriptCount {
	for i := range c.Counts {
		if c.Counts[i].Spec == spec {
			return &c.Counts[i]
		}
	}
	c.Counts = append(c.Counts, ScriptCount{Spec: spec})
	return &c.Counts[len(c.Counts)-1]
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
