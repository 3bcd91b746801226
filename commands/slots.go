// Hash slots as Redis Cluster defines them. Here one shard holds all slots, so they only matter to
// cluster clients that group keys by slot.

package commands

import (
	"bytes"
	"math"

	"github.com/coordd/coordd/commands/keyspace"
)

// Slots is the number of slots.
const Slots = 16384

const (
	errSlot      Error = "ERR Invalid slot"
	errSlotCount Error = "ERR Invalid slot or number of keys"
)

// crcTable is for the CRC-16 that the specification of Redis Cluster names (XMODEM: polynomial
// 0x1021, high bit first, initial value 0).
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc & 0x8000
			crc <<= 1
			if carry != 0 {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()

// Slot returns the slot of a key, from 0 to Slots-1. If the key has a hash tag, something between
// its first { and the next }, only that is hashed
// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/, "Hash tags").
func Slot(key []byte) int {
	if _, rest, found := bytes.Cut(key, []byte{'{'}); found {
		if tag, _, closed := bytes.Cut(rest, []byte{'}'}); closed && len(tag) > 0 {
			key = tag
		}
	}
	var crc uint16
	for _, c := range key {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^c]
	}
	return int(crc % Slots)
}

// CountKeysInSlot is the handler of CLUSTER COUNTKEYSINSLOT slot.
func CountKeysInSlot(x *Call) error {
	slot, ok := ParseInt(x.Args[2])
	switch {
	case !ok:
		return ErrNotInteger
	case slot < 0 || slot >= Slots:
		return errSlot
	}
	n := 0
	x.eachInSlot(slot, func(*keyspace.Entry) bool { n++; return true })
	x.Out.Int(int64(n))
	return nil
}

// GetKeysInSlot is the handler of CLUSTER GETKEYSINSLOT slot count. The keys come in SCAN's order.
func GetKeysInSlot(x *Call) error {
	slot, ok := ParseInt(x.Args[2])
	limit, counted := ParseInt(x.Args[3])
	switch {
	case !ok || !counted:
		return ErrNotInteger
	case slot < 0 || slot >= Slots || limit < 0:
		return errSlotCount
	}
	var found []*keyspace.Entry
	if limit > 0 {
		x.eachInSlot(slot, func(e *keyspace.Entry) bool {
			found = append(found, e)
			return int64(len(found)) < limit
		})
	}
	x.Out.Array(len(found))
	for _, e := range found {
		x.Out.BulkString(e.Key())
	}
	return nil
}

// eachInSlot calls f with the database's keys in a slot until it returns false. There is no index
// by slot, so it looks at all keys.
func (x *Call) eachInSlot(slot int64, f func(*keyspace.Entry) bool) {
	x.eachWithSlot(func(e *keyspace.Entry, of int) bool { return int64(of) != slot || f(e) })
}

// eachWithSlot calls f with the database's keys and their slots until it returns false.
func (x *Call) eachWithSlot(f func(e *keyspace.Entry, slot int) bool) {
	var name []byte
	x.spendDead(math.MaxInt)
	x.DB().Each(func(e *keyspace.Entry) bool {
		x.Spend(1 + len(e.Key())/64)
		if x.Level >= LevelSecond {
			x.Spend(walkedWork + len(e.Key())/8)
		}
		name = append(name[:0], e.Key()...)
		return f(e, Slot(name))
	})
}
