// What bounds users and their rules, and what it costs to give them.

package acl

import "strings"

// A user is counted with its name and rules as text, and for each selector and rule with what they
// take besides. So the limits bound memory, and the work of ACL LIST and ACL LOAD, which have to do
// with all users at once.
const (
	selectorBytes = 1 << 10 // also of the root
	ruleBytes     = 128

	maxUserBytes = 128 << 10
	maxBytes     = 8 << 20

	// maxGiven bounds the rules that are given at once, in bytes, maxRules in number: twice what a
	// user can keep.
	maxGiven = 2 * maxUserBytes
	maxRules = maxGiven / ruleBytes

	// MaxFile bounds a file of users, in bytes. A byte takes up to two, in quotes.
	MaxFile = 2 * maxBytes
)

const (
	errUserBytes Error = "The rules of a user exceed 131072 bytes, a rule counted as 128 and a " +
		"selector as 1024 more"
	errBytes Error = "The rules of all users exceed 8388608 bytes, a rule counted as 128 and a " +
		"user or selector as 1024 more"
	errRules Error = "Too many rules, at most 2048 in 262144 bytes are allowed at once"
	errFile  Error = "The file of users exceeds 16777216 bytes"
	errWork  Error = "The file of users takes too much work"
)

// Work, in units of 25 ns.
const (
	lineWork     = 40 // a line of a file
	readBytes    = 8  // bytes that are one unit to read
	keptBytes    = 8  // bytes of a user that are one unit to copy and to encode
	ruleWork     = 16 // a rule
	ruleSearched = 4  // rules that are one unit to compare with another one
	newSelWork   = 40 // a selector
)

// checkGiven refuses more rules than a user can have, before anything is done with them.
func checkGiven(rules [][]byte) error {
	size, words := 0, len(rules)
	for _, r := range rules {
		if size += len(r); size > maxGiven {
			return errRules
		}
		words += spaces(r)
	}
	if words > maxRules {
		return errRules
	}
	return nil
}

// spaces is how many more rules a selector can have than one. Its words hold no space, but may hold
// other bytes that nobody sees.
func spaces[S ~string | ~[]byte](rule S) (n int) {
	for i := range len(rule) {
		if strings.IndexByte(space, rule[i]) >= 0 {
			n++
		}
	}
	return n
}

// rulesWork is what a rule costs at most that comes to the rules of a user, maybe as a selector
// with rules of its own.
func (u *User) rulesWork(rule string) int {
	read := ruleWork + len(rule)/readBytes
	if len(rule) > 0 && rule[0] == '(' {
		n := 1 + spaces(rule)
		searched := n * n / 2 // each rule is compared with those before it
		return read + newSelWork + n*ruleWork + searched/ruleSearched
	}
	return read + (len(u.hashes)+u.root.count())/ruleSearched
}

// weigh returns the bytes that the user is counted with.
func (u *User) weigh() int {
	n := len(u.AppendTo(nil)) + len(u.hashes)*ruleBytes
	for s := range u.all() {
		n += selectorBytes + s.count()*ruleBytes
	}
	return n
}

// count is the number of the selector's rules. First arguments are kept twice.
func (s *selector) count() int {
	return len(s.keys) + len(s.channels) + len(s.rules) + len(s.firstArgs)
}
