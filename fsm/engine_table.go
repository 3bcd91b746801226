// The one look into gopher-lua's tables that their methods do not give.

package fsm

import (
	"reflect"

	lua "github.com/yuin/gopher-lua"
)

// deadKeys is how many keys a table keeps that were set to nil. gopher-lua never forgets a key, and each walk from a key goes over
// those that follow: who walks must pay for them. Only lengths are read.
func deadKeys(t *lua.LTable) int64 {
	v := reflect.ValueOf(t).Elem()
	return int64(v.FieldByName("keys").Len() - v.FieldByName("dict").Len() - v.FieldByName("strdict").Len())
}
