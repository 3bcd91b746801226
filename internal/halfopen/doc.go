// Package halfopen bounds the connections that have not identified themselves yet.
package halfopen
