package commands

import "testing"

// mayLeave are commands that remove a key and need not end what is lent of it, with the reason.
var mayLeave = map[string]string{
	"rename":   "fails if there is no key, which says nothing of what it has",
	"renamenx": "fails if there is no key, which says nothing of what it has",
}

// What removes elements of lists and sorted sets, or keys, says what they do not have afterwards,
// or takes from the ends: see Purges and Ends.
func TestRemovalsEndLoans(t *testing.T) {
	for _, spec := range Specs() {
		switch spec.Group {
		case "list", "sorted-set", "geo", "generic":
		default:
			continue
		}
		removes := spec.Keys.Flags&(KeyDelete|KeyRM) != 0
		for _, part := range spec.Keys.Parts {
			removes = removes || part.Flags&(KeyDelete|KeyRM) != 0
		}
		if spec.Kind == Write && removes && !spec.Has(Purges) && !spec.Has(Ends) &&
			mayLeave[spec.Name] == "" {
			t.Errorf("%s removes, and neither purges nor takes from the ends", spec.Name)
		}
	}
}
