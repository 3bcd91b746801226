// Package lint holds tests that read the sources: their form, their width and their words.
package lint
