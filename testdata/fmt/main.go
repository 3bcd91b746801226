// Command fmt breaks lines that are too wide in the documents and in the comments of the sources
// that git knows or would add. With -l it only lists the files that it would change, and fails if
// there are any. It is run from the top of the repository: go run ./testdata/fmt [-l]
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/coordd/coordd/internal/tests/wrap"
)

func main() {
	list := flag.Bool("l", false, "list files, and change none")
	flag.Parse()
	if err := run(*list); err != nil {
		fmt.Fprintln(os.Stderr, "fmt:", err)
		os.Exit(1)
	}
}

func run(list bool) error {
	out, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard",
		"*.md", "*.go").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	var errs []error
	for _, path := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(path)
		switch {
		case os.IsNotExist(err): // deleted, but not yet in git
			continue
		case err != nil:
			return err
		}
		changed := wrap.Markdown(string(text))
		if strings.HasSuffix(path, ".go") {
			changed = wrap.Comments(string(text))
		}
		if changed == string(text) || bytes.Contains(text, []byte("DO NOT EDIT.\n")) {
			continue
		}
		fmt.Println(path)
		if list {
			errs = []error{errors.New("make fmt would change these files")}
		} else if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}
