// Package names is a small DNS server on the loopback, whose records tests change.
package names
