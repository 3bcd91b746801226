// Package backups keeps backups where they outlive the cluster: in a directory or in a bucket of an
// S3-compatible store. It names them by time, checks what it has stored, removes old ones, and
// takes one in each interval.
package backups
