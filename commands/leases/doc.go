// Package leases is a registry of leases: terms that clients renew, with the keys and the members
// of keys that live as long. It knows no keyspace: whoever changes a lease moves the deadlines of
// its items. All times are ms of the cluster clock.
package leases
