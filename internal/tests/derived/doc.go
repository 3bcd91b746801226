// Package derived replaces the parts of documents that programs write.
package derived
