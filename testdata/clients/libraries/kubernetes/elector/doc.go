// Package elector has coordd hold the leader elections of Kubernetes' client-go: a Lock is a
// resourcelock.Interface. Copy it: it is an example, and no promise (docs/adr/0065).
//
// The election's lock is one of LOCK.ACQUIRE, so it ends by coordd's clock, no two candidates have
// it, and each leader has a fencing token. The record of client-go lies beside it, for those who
// want to see it.
package elector
