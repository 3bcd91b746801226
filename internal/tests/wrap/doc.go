// Package wrap breaks lines of Markdown and of Go's comments that are too wide. It leaves
// paragraphs without one as they are.
package wrap
