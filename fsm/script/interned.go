package script

import (
	"github.com/cespare/xxhash/v2"

	"github.com/coordd/coordd/fsm/script/lua"
)

// interned are short strings that commands and scripts got before, by hash. One that comes again,
// such as an owner, a limit or a lease, takes no allocation.
type interned [1 << internedBits]lua.LValue

const (
	internedBits = 8
	maxInterned  = 64 // bytes
)

// value returns a string as a value.
func (t *interned) value(b []byte) lua.LValue {
	if len(b) > maxInterned {
		return lua.LString(b)
	}
	known := &t[xxhash.Sum64(b)>>(64-internedBits)]
	if s, ok := (*known).(lua.LString); !ok || string(s) != string(b) {
		*known = lua.LString(b)
	}
	return *known
}
