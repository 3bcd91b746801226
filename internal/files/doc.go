// Package files reads small files, whatever a path leads to, and writes them so that a crash leaves
// the old content or the new one.
package files
