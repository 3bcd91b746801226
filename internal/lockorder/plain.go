//go:build !coordd_lockorder

package lockorder

import "sync"

type (
	// Mutex is sync.Mutex.
	Mutex = sync.Mutex
	// RWMutex is sync.RWMutex.
	RWMutex = sync.RWMutex
)
