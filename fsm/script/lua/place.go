package lua

import "sync/atomic"

// place is where a constant was found last among the keys of a large table: a guess, which nothing
// but speed depends on. Functions are shared by interpreters that run at the same time.
type place struct{ atomic.Uint32 }

// getConstant returns t[key] without metamethods. p is where the constant key was found last.
func (tb *LTable) getConstant(key string, p *place) LValue {
	if tb.strings == nil {
		return tb.RawGetString(key)
	}
	if i := int(p.Load()); i < len(tb.entries) {
		if s, ok := tb.entries[i].key.(LString); ok && string(s) == key {
			return tb.entries[i].value
		}
	}
	i, ok := tb.strings[key]
	if !ok {
		return LNil
	}
	p.Store(uint32(i))
	return tb.entries[i].value
}
