// Package seeds gives random tests their seeds. Without the environment variable a test always has
// the same one, so that it fails for a change and not by chance. Programs that look for faults by
// chance, such as make differential, set it.
package seeds
