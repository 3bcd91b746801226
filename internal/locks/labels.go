package locks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxLabels is how many labels rules may give, besides Other.
const MaxLabels = 100

// Other is the label of keys that no rule is for.
const Other = "other"

// maxRule bounds the length of a prefix and of a label.
const maxRule = 256

// Rules say which label a key has, by its longest prefix.
type Rules struct {
	text   string
	labels []string
	rules  []rule // sorted by prefix
}

type rule struct {
	prefix string
	label  int
	// the longest other prefix that this one begins with; -1: none
	shorter int
}

var errRules = errors.New("must be prefixes, or prefix=label, separated by spaces, in UTF-8")

// ParseRules parses rules: prefixes separated by spaces, each with =label if the label is not the
// prefix itself. Several prefixes may have one label.
func ParseRules(text string) (*Rules, error) {
	r := &Rules{text: strings.Join(strings.Fields(text), " ")}
	for _, word := range strings.Fields(text) {
		prefix, label := word, word
		if i := strings.LastIndexByte(word, '='); i >= 0 {
			prefix, label = word[:i], word[i+1:]
		}
		if prefix == "" || label == "" || len(word) > maxRule || !utf8.ValidString(word) {
			return nil, errRules
		}
		at := slices.Index(r.labels, label)
		if at < 0 && label != Other {
			at = len(r.labels)
			r.labels = append(r.labels, label)
		}
		if slices.ContainsFunc(r.rules, func(o rule) bool { return o.prefix == prefix }) {
			return nil, fmt.Errorf("prefix %q is given twice", prefix)
		}
		r.rules = append(r.rules, rule{prefix: prefix, label: at, shorter: -1})
	}
	if len(r.labels) > MaxLabels || len(r.rules) > 10*MaxLabels {
		return nil, fmt.Errorf("at most %d labels", MaxLabels)
	}
	for i := range r.rules {
		if r.rules[i].label < 0 {
			r.rules[i].label = len(r.labels)
		}
	}
	r.labels = append(r.labels, Other)
	slices.SortFunc(r.rules, func(a, b rule) int { return strings.Compare(a.prefix, b.prefix) })
	for i := range r.rules {
		for j := i - 1; j >= 0; j = r.rules[j].shorter {
			if strings.HasPrefix(r.rules[i].prefix, r.rules[j].prefix) {
				r.rules[i].shorter = j
				break
			}
		}
	}
	return r, nil
}

// String returns the rules as ParseRules reads them.
func (r *Rules) String() string { return r.text }

// of returns the index of a key's label.
func (r *Rules) of(key []byte) int {
	low, high := 0, len(r.rules)
	for low < high { // the last prefix that is not after the key
		if m := (low + high) / 2; r.rules[m].prefix <= string(key) {
			low = m + 1
		} else {
			high = m
		}
	}
	for i := low - 1; i >= 0; i = r.rules[i].shorter {
		if p := r.rules[i].prefix; len(p) <= len(key) && string(key[:len(p)]) == p {
			return r.rules[i].label
		}
	}
	return len(r.labels) - 1
}
