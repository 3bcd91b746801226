// Package corpus reads the scripts of testdata/scripts.
package corpus
