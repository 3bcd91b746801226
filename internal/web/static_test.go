package web

import (
	"io/fs"
	"regexp"
	"testing"
)

// What the address names is looked up in a Map: every object has a constructor, which is no view.
func TestAddressNamesAView(t *testing.T) {
	plain := regexp.MustCompile(`\bviews\[|\bviews = \{|\[[^\]]*\b(?:location|hash)\b`)
	err := fs.WalkDir(static, "static", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		src, err := fs.ReadFile(static, path)
		if found := plain.Find(src); found != nil {
			t.Errorf("%s: %q: use a Map", path, found)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
