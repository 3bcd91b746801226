// Package files writes small files so that a crash leaves the old content or the new one.
package files
