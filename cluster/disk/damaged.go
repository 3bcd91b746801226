// What is wrong with a file or its disk.

package disk

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/hashicorp/raft-wal/types"
)

// ErrDamaged is what a file is that was changed, or lost something, after it was written.
var ErrDamaged = fmt.Errorf("the file is damaged (%w)", types.ErrCorrupt)

// Damagedf returns why a file cannot be believed, and what to do.
func Damagedf(file, format string, args ...any) error {
	return fmt.Errorf("%s: %s: %w. Nothing was changed. Do not start this node on it: docs/"+
		"operations.md, \"Damaged files\", says how to replace it", file,
		fmt.Sprintf(format, args...), ErrDamaged)
}

// NoSpace reports whether an error is for lack of room.
func NoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
