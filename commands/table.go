package commands

import "slices"

// Specs gives every command that touches data. Package server adds the session's own.
func Specs() []Spec {
	return slices.Concat(stringSpecs, bitSpecs, keySpecs, hashSpecs, hashLifeSpecs, setSpecs, zsetSpecs, listSpecs, sortSpecs, streamSpecs, limitSpecs, scriptSpecs, functionSpecs, nextSpecs)
}
