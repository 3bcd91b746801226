// Where the keys of a call are, and what the command does to each of them.

package commands

// KeyFlag says what a command does to a key, in Redis's terms.
type KeyFlag uint16

// One of the first four says how the value is accessed, the others what its content is used for.
const (
	KeyRO       KeyFlag = 1 << iota // read only
	KeyRW                           // read and changed
	KeyOW                           // overwritten unread
	KeyRM                           // removed unread
	KeyAccess                       // the content decides the reply
	KeyUpdate                       // the content is changed
	KeyInsert                       // something is added, nothing changed
	KeyDelete                       // something is removed
	KeyNone                         // no key, though routed like one: a shard channel
	KeyVariable                     // the arguments decide the flags
)

// keyWords names the flags in Redis's order.
var keyWords = []struct {
	flag KeyFlag
	word string
}{
	{KeyRO, "RO"}, {KeyRW, "RW"}, {KeyOW, "OW"}, {KeyRM, "RM"}, {KeyAccess, "access"},
	{KeyUpdate, "update"}, {KeyInsert, "insert"},
	{KeyDelete, "delete"}, {KeyNone, "not_key"}, {KeyVariable, "variable_flags"},
}

// Words returns Redis's words for the flags, in its order.
func (f KeyFlag) Words() []string {
	var words []string
	for _, w := range keyWords {
		if f&w.flag != 0 {
			words = append(words, w.word)
		}
	}
	return words
}

// KeyPart says where some of a command's keys are, and what happens to them. They start at argument
// First, or after the argument Keyword, searched from First on. They end at Last, relative to their
// start (negative: to the end of the arguments), in steps of Step. A Limit above 1 ends them after
// that share of the arguments. With Numkeys the argument at the start counts the keys that follow
// it. Unknown means that only KeySpec.Find can find them.
type KeyPart struct {
	First, Last, Step int
	Limit             int
	Keyword           string
	Numkeys, Unknown  bool
	Flags             KeyFlag
	// Vary returns the flags of a call, if Flags has KeyVariable.
	Vary func(args [][]byte) KeyFlag
}

// KeyParts returns what is known of the command's keys, part by part.
func (s *Spec) KeyParts() []KeyPart {
	k := s.Keys
	switch {
	case k.Parts != nil:
		return k.Parts
	case k.Numkeys > 0:
		return []KeyPart{{First: k.Numkeys, Step: max(k.Step, 1), Numkeys: true, Flags: k.Flags}}
	case k.First == 0:
		return nil
	}
	last := k.Last
	if last > 0 {
		last -= k.First
	}
	return []KeyPart{{First: k.First, Last: last, Step: max(k.Step, 1), Flags: k.Flags}}
}

// positions returns the positions of the part's keys in args.
func (p *KeyPart) positions(args [][]byte) []int {
	if p.Unknown {
		return nil
	}
	first := p.First
	if p.Keyword != "" {
		if first = p.find(args); first < 0 {
			return nil
		}
	}
	last := first + p.Last
	switch {
	case p.Numkeys:
		if first >= len(args) {
			return nil
		}
		n, ok := ParseInt(args[first])
		if !ok || n < 0 || n > int64(len(args)) {
			return nil
		}
		first++
		last = first + (int(n)-1)*p.Step
	case p.Last < 0 && p.Limit > 1:
		last = first + (len(args)-first)/p.Limit + p.Last
	case p.Last < 0:
		last = len(args) + p.Last
	}
	var positions []int
	for i := first; i <= last && i < len(args); i += p.Step {
		positions = append(positions, i)
	}
	return positions
}

// find returns the position after the keyword, or -1.
func (p *KeyPart) find(args [][]byte) int {
	for i := p.First; i < len(args)-1; i++ {
		if isWord(args[i], p.Keyword) {
			return i + 1
		}
	}
	return -1
}

// KeyUse is a key of a call and what happens to it.
type KeyUse struct {
	Index int // in the arguments
	Flags KeyFlag
}

// KeyUses returns the keys of a call and what happens to them, in the order of KeyIndexes.
func (s *Spec) KeyUses(args [][]byte) ([]KeyUse, error) {
	if s.Keys.Carried {
		return s.carriedKeyUses(args)
	}
	positions, err := s.KeyIndexes(args)
	if err != nil {
		return nil, err
	}
	parts := s.KeyParts()
	uses := make([]KeyUse, len(positions))
	if len(parts) == 1 && parts[0].Vary == nil {
		for i, position := range positions {
			uses[i] = KeyUse{position, parts[0].Flags}
		}
		return uses, nil
	}
	// The first part that has a position decides. A call may have a million.
	flags := make(map[int]KeyFlag, len(positions))
	for j := range parts {
		p := &parts[j]
		own := p.positions(args)
		of := p.Flags
		if p.Vary != nil && len(own) > 0 {
			of = p.Vary(args)
		}
		for _, position := range own {
			if _, known := flags[position]; !known {
				flags[position] = of
			}
		}
	}
	for i, position := range positions {
		of, known := flags[position]
		if !known {
			of = parts[len(parts)-1].Flags // an unknown part comes last
		}
		uses[i] = KeyUse{position, of}
	}
	return uses, nil
}

// varies sets the function that decides what a call does to its keys, all of one part.
func (k KeySpec) varies(vary func(args [][]byte) KeyFlag) KeySpec {
	parts := (&Spec{Keys: k}).KeyParts()
	parts[0].Vary = vary
	k.Parts = parts
	return k
}

// setUses returns what SET does to its key. Whether a condition on the value holds tells of it.
func setUses(args [][]byte) KeyFlag {
	for _, a := range args[3:] {
		if isWord(a, "GET") || ifWord(a) != setAlways {
			return KeyRW | KeyAccess | KeyUpdate
		}
	}
	return KeyOW | KeyUpdate
}

// bitfieldUses returns what BITFIELD does to its key: with GET alone it only reads.
func bitfieldUses(args [][]byte) KeyFlag {
	for i := 2; i < len(args); i += 3 {
		if !isWord(args[i], "GET") || i+2 >= len(args) {
			return KeyRW | KeyAccess | KeyUpdate
		}
	}
	return KeyRO | KeyAccess
}

// does sets what the command does to its keys: the same to all, or first to the first key and rest
// to the others, which an argument counts if First is Last.
func (k KeySpec) does(first KeyFlag, rest ...KeyFlag) KeySpec {
	k.Flags = first
	if len(rest) == 0 {
		return k
	}
	others := KeyPart{First: k.First + 1, Last: k.Last, Step: 1, Flags: rest[0]}
	switch {
	case k.First == k.Last:
		others.Last, others.Numkeys = 0, true
	case k.Last > 0:
		others.Last -= k.First + 1
	}
	k.Parts = []KeyPart{{First: k.First, Step: 1, Flags: first}, others}
	return k
}

// needs sets how many elements a call that waits needs.
func (k KeySpec) needs(least func(args [][]byte) int64) KeySpec {
	k.Least = least
	return k
}

// KeySpec says where a command's keys are: at First, First+Step … Last (negative: counted from the
// end) or, if Numkeys is not 0, after the argument at Numkeys, which counts them. A command without
// keys has First and Numkeys 0.
type KeySpec struct {
	First, Last, Step int
	Numkeys           int
	// Find returns the positions of the keys if the fields above cannot express them, or nil if
	// args are invalid. The number of args fits the arity. First, Last and Step are then only what
	// COMMAND INFO shows.
	Find func(args [][]byte) []int
	// Paired is set if an argument for each key follows the keys: the ids of XREAD.
	Paired bool
	// Flags say what the command does to all its keys. If it differs between keys, Parts has the
	// flags.
	Flags KeyFlag
	Parts []KeyPart
	// Least returns how many elements of its key a call that waits needs; nil: one.
	Least func(args [][]byte) int64
	// Carried makes the command run the call that Spec.Carries says, in place of a handler of its
	// own. Keys and rights are those of that call.
	Carried bool
	table   *Table // for Carried
}

const errInvalidArguments Error = "ERR Invalid arguments specified for command"

// KeyIndexes returns the positions of the keys in args, or an error if args contradict the KeySpec.
func (s *Spec) KeyIndexes(args [][]byte) ([]int, error) {
	k := s.Keys
	first, last, step := k.First, k.Last, max(k.Step, 1)
	if k.Find != nil {
		positions := k.Find(args)
		if positions == nil {
			return nil, errInvalidArguments
		}
		return positions, nil
	}
	if k.Numkeys > 0 {
		if k.Numkeys >= len(args) {
			return nil, errInvalidArguments
		}
		n, ok := ParseInt(args[k.Numkeys])
		if !ok || n < 0 || n > int64(len(args)-k.Numkeys-1)/int64(step) {
			return nil, errInvalidArguments
		}
		first, last = k.Numkeys+1, k.Numkeys+int(n)*step
	} else if first == 0 {
		return nil, nil
	}
	if last < 0 {
		last += len(args)
	}
	var positions []int
	for i := first; i <= last && i < len(args); i += step {
		positions = append(positions, i)
	}
	return positions, nil
}
