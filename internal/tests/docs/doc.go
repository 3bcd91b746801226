// Package docs keeps documents in step with what they are made of.
package docs
