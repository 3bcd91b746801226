package commands

import "slices"

// Specs gives every command that touches data. Package server adds the session's own.
func Specs() []Spec {
	return slices.Concat(stringSpecs, hashLifeSpecs, bitSpecs, keySpecs, hashSpecs, setSpecs, zsetSpecs, listSpecs, sortSpecs, limitSpecs, scriptSpecs, functionSpecs)
}
