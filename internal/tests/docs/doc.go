// Package docs keeps documents in step with the code that they describe.
package docs
