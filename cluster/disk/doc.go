// Package disk is what a node must believe of its disk: the files below its log, those of the
// system or a test's, and small files with a checksum that are there twice. Damage is an error that
// says what to do. See docs/adr/0056.
package disk
