// Package lint tests the sources: their form, their width and their words.
package lint
