// Package differential compares coordd with a real redis-server: random calls go to both, and
// replies, messages and all data must be equal but for what docs/compatibility.md lists. `make
// differential` runs it at length.
package differential
