// Package logging limits the rate of warnings that clients and strangers can cause.
package logging
