// Package ascii compares names that ignore case. As on Redis, only the case of ASCII letters is
// ignored: Unicode's rules let a few other letters stand for an i, a k or an s, and change the
// length of a name.
package ascii
