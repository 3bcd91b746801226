// Package operations runs the procedures of the documents for operators, as they are written, on
// machines with a fresh Debian, a running systemd and coordd's packages, while clients are at work.
package operations
