//go:build !coordd_lockorder

package lockorder

import "sync"

// Checked reports whether this build checks the order of locks.
const Checked = false

type (
	// Mutex is sync.Mutex.
	Mutex = sync.Mutex
	// RWMutex is sync.RWMutex.
	RWMutex = sync.RWMutex
)
