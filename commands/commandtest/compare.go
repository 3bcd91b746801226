// How a scenario line compares two replies.

package commandtest

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Compare says how two replies are compared. The zero value compares their bytes.
type Compare struct {
	Sorted    bool  // ignore the order of the top-level elements
	Pairs     bool  // ignore the order of the top-level pairs
	Rounded   bool  // integers, and bulk strings that are integers, may differ by Tolerance
	Tolerance int64 //
	Error     bool  // compare only the first word of errors
	Shape     bool  // compare only types and numbers of elements
	// Without, if not empty, is a field that is left out of maps, and of lists of pairs.
	Without string
	// Behind, if not empty, is a mark: of texts that have it, only what follows it is compared.
	Behind string
}

// parseCompare parses the words in brackets at the start of a line: "sorted, rounded 20". silent
// means that no reply comes.
func parseCompare(s string) (c Compare, silent bool, err error) {
	for word := range strings.SplitSeq(s, ",") {
		name, arg, _ := strings.Cut(strings.TrimSpace(word), " ")
		switch {
		case name == "rounded":
			c.Rounded = true
			if c.Tolerance, err = strconv.ParseInt(arg, 10, 64); err != nil || c.Tolerance < 0 {
				return c, false, fmt.Errorf("[rounded N]: %q is no tolerance", arg)
			}
			continue
		case name == "without" && arg != "":
			c.Without = arg
			continue
		case name == "behind" && arg != "":
			c.Behind = arg
			continue
		case arg != "":
			return c, false, fmt.Errorf("[%s] takes no argument", name)
		}
		switch name {
		case "sorted":
			c.Sorted = true
		case "pairs":
			c.Pairs = true
		case "error":
			c.Error = true
		case "shape":
			c.Shape = true
		case "silent":
			silent = true
		default:
			return c, false, fmt.Errorf("unknown comparison [%s]", name)
		}
	}
	return c, silent, nil
}

// Equal reports whether two replies, as bytes, are equal under c. An incomplete reply equals
// nothing.
func (c Compare) Equal(a, b []byte) (bool, error) {
	va, err := Parse(a)
	if err != nil {
		return false, err
	}
	vb, err := Parse(b)
	if err != nil {
		return false, err
	}
	if c == (Compare{}) {
		return bytes.Equal(a, b), nil
	}
	if c.Without != "" {
		va, vb = c.omit(va), c.omit(vb)
	}
	if c.Sorted || c.Pairs {
		va, vb = c.sort(va), c.sort(vb)
	}
	return c.same(va, vb), nil
}

// omit leaves the field Without out.
func (c Compare) omit(v Value) Value {
	var elems []Value
	for i := 0; i < len(v.Elems); i++ {
		if i%2 == 0 && v.Elems[i].Text == c.Without && i+1 < len(v.Elems) {
			i++
			continue
		}
		elems = append(elems, c.omit(v.Elems[i]))
	}
	v.Elems = elems
	return v
}

// sort sorts the top-level elements, or pairs, by their text.
func (c Compare) sort(v Value) Value {
	size := 1
	if c.Pairs || v.Kind == '%' {
		size = 2
	}
	if len(v.Elems)%size != 0 {
		return v
	}
	groups := slices.Collect(slices.Chunk(v.Elems, size))
	slices.SortStableFunc(groups, func(a, b []Value) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	v.Elems = slices.Concat(groups...)
	return v
}

func (c Compare) same(a, b Value) bool {
	if a.Kind != b.Kind || a.Null != b.Null || len(a.Elems) != len(b.Elems) {
		return false
	}
	for i := range a.Elems {
		if !c.same(a.Elems[i], b.Elems[i]) {
			return false
		}
	}
	if c.Shape || a.Text == b.Text {
		return true
	}
	if c.Behind != "" {
		_, restA, foundA := strings.Cut(a.Text, c.Behind)
		_, restB, foundB := strings.Cut(b.Text, c.Behind)
		return foundA && foundB && restA == restB
	}
	if c.Error && a.IsError() {
		wa, _, _ := strings.Cut(a.Text, " ")
		wb, _, _ := strings.Cut(b.Text, " ")
		return wa == wb
	}
	if c.Rounded && (a.Kind == ':' || a.Kind == '$') {
		x, errX := strconv.ParseInt(a.Text, 10, 64)
		y, errY := strconv.ParseInt(b.Text, 10, 64)
		// -1 and -2 have their own meaning (no expiry, no key); they are no rounding of 0.
		return errX == nil && errY == nil && x >= 0 && y >= 0 && max(x, y)-min(x, y) <= c.Tolerance
	}
	return false
}
