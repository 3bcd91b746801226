// Requests that run once: the option ID, and IDEMPOTENT. The machine remembers their replies
// (package once); here is where a call has its id, and which call IDEMPOTENT runs.

package commands

import "github.com/coordd/coordd/commands/once"

// Errors of requests that run once.
const (
	ErrRequestID Error = "ERR the id of a request must have 1 to 128 bytes"
	// ErrOtherRequest refuses an id that the user has given to another call.
	ErrOtherRequest Error = "ERR another request has run with this id; this one did not run"
	// ErrReplyNotKept replaces a reply that is too long to be remembered.
	ErrReplyNotKept Error = "ERR the request has run; its reply was too large to be remembered"
	// ErrScriptID refuses an id in a script, which runs as a whole or not at all.
	ErrScriptID Error = "ERR ID is not allowed in scripts: run the script with IDEMPOTENT"

	errCarriesItself Error = "ERR IDEMPOTENT cannot run IDEMPOTENT"
	errCarriesWait   Error = "ERR IDEMPOTENT cannot run a command that waits"
	errCarriesID     Error = "ERR the command has an ID itself: call it without IDEMPOTENT"
)

var onceSpecs = []Spec{{
	Name: "idempotent", Kind: Write, Arity: -3, Group: "generic", Since: "0.2.0",
	Flags: NoScript | MovableKeys | NoMandatoryKeys,
	Keys: KeySpec{Carried: true, Parts: []KeyPart{{Unknown: true,
		Flags: KeyRW | KeyAccess | KeyUpdate | KeyVariable}}},
	Syntax:     "request command [arg [arg ...]]",
	Summary:    "Runs a command once, and returns its reply to every repeat of the request.",
	Complexity: "That of the command", Level: LevelSecond,
	Carries:   2,
	RequestID: func(args [][]byte) []byte { return givenID(args[1]) },
	Grows:     growsCarried,
	Handler:   func(x *Call) error { return Errorf("ERR '%s' cannot be run here", x.Spec.Name) },
}}

// requestID returns the id of a call that ends with ID and an id, at args[from] or later. nil: it
// does not.
func requestID(args [][]byte, from int) []byte {
	at := len(args) - 2
	if at < from || !isWord(args[at], "ID") {
		return nil
	}
	return givenID(args[at+1])
}

// givenID returns an argument as an id, which is not nil.
func givenID(arg []byte) []byte {
	if arg == nil {
		return []byte{}
	}
	return arg
}

// ErrUnderWay is the error for a request with the id of one that waits.
const ErrUnderWay Error = "TRYAGAIN the command did not run: a request with this id is under way"

// parseRequestID checks an id. The machine does so for all that Spec.RequestID returns, before the
// command runs.
func parseRequestID(id []byte) ([]byte, error) {
	if len(id) == 0 || len(id) > once.MaxID {
		return nil, ErrRequestID
	}
	return id, nil
}

// withoutID returns the arguments without an ID at the end, which begins at args[from] or later.
func (x *Call) withoutID(from int) [][]byte {
	if x.Level < LevelSecond || requestID(x.Args, from) == nil {
		return x.Args
	}
	return x.Args[:len(x.Args)-2]
}

// RequestID returns the id of a call, nil if it has none. It fails for an id that is not allowed.
// The number of arguments is right.
func (x *Call) RequestID(spec *Spec, args [][]byte) ([]byte, error) {
	if spec.RequestID == nil || x.Level < LevelSecond {
		return nil, nil
	}
	id := spec.RequestID(args)
	if id == nil {
		return nil, nil
	}
	return parseRequestID(id)
}

// carryFrom gives a command that runs the call that it carries the table of commands.
func (s *Spec) carryFrom(t *Table) {
	s.Keys.table = t
	s.Keys.Find = func(args [][]byte) []int {
		uses, err := s.carriedKeyUses(args)
		if err != nil {
			return nil
		}
		indexes := make([]int, len(uses))
		for i, use := range uses {
			indexes[i] = use.Index
		}
		return indexes
	}
}

// Carried returns the call that a command runs that it carries, and any other call as it is, also
// one that carries what cannot be run.
func (s *Spec) Carried(args [][]byte) (*Spec, [][]byte) {
	if s.Keys.Carried {
		if inner, err := s.carriedAt(FeatureLevel, args); err == nil {
			return inner, args[s.Carries:]
		}
	}
	return s, args
}

// CarriedError returns the error for a call of a command that runs the call that it carries, if it
// cannot run that one.
func (s *Spec) CarriedError(args [][]byte) error {
	if !s.Keys.Carried {
		return nil
	}
	_, err := s.carriedAt(FeatureLevel, args)
	return err
}

// carriedAt returns the command that a call runs that it carries, on a machine of a feature level,
// or the error for a command that it cannot run.
func (s *Spec) carriedAt(level uint64, args [][]byte) (*Spec, error) {
	if len(args) <= s.Carries {
		return nil, s.ArityError()
	}
	args = args[s.Carries:]
	inner, err := s.Keys.table.ResolveAt(level, args)
	switch {
	case err != nil:
		return nil, err
	case inner.Keys.Carried:
		return nil, errCarriesItself
	case inner.Kind != Read && inner.Kind != Write, inner.Handler == nil, inner.Rewrite != nil,
		inner.Has(NoMulti | Unlogged | Administrative | SelectsDB):
		return nil, Errorf("ERR IDEMPOTENT cannot run '%s'", inner.FullName())
	case inner.MayWait(args):
		return nil, errCarriesWait
	case inner.RequestID != nil && inner.RequestID(args) != nil:
		return nil, errCarriesID
	}
	return inner, nil
}

// carriedKeyUses is KeyUses for a command that runs the call that it carries.
func (s *Spec) carriedKeyUses(args [][]byte) ([]KeyUse, error) {
	inner, err := s.carriedAt(FeatureLevel, args)
	if err != nil {
		return nil, err
	}
	uses, err := inner.KeyUses(args[s.Carries:])
	for i := range uses {
		uses[i].Index += s.Carries
	}
	return uses, err
}

// unwrap makes x the call that it carries, and returns its command.
func (x *Call) unwrap(spec *Spec) (*Spec, error) {
	inner, err := spec.carriedAt(x.Level, x.Args)
	if err == nil {
		x.Args = x.Args[spec.Carries:]
	}
	return inner, err
}

// growsCarried is for commands that run the call that they carry.
func growsCarried(x *Call) bool {
	inner, err := x.Spec.carriedAt(x.Level, x.Args)
	if err != nil {
		return false
	}
	args := x.Args
	x.Args = args[x.Spec.Carries:]
	grows := x.NeedsMemory(inner)
	x.Args = args
	return grows
}
