package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// before runs a test on the commit before the one that brought it, with the tests of that one: if
// the commit mended a fault, the test shows it there.
func before(ctx context.Context, test string) error {
	named := "func " + test + "("
	commits, err := git(ctx, ".", "log", "--reverse", "--format=%H %h %ad %s", "--date=short",
		"-S"+named, "--", "*_test.go")
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(commits, "\n")
	commit, title, ok := strings.Cut(first, " ")
	if !ok {
		return fmt.Errorf("no commit brought %s", test)
	}
	file, err := git(ctx, ".", "grep", "-l", "--fixed-strings", named, commit, "--", "*_test.go")
	if err != nil {
		return err
	}
	pkg := path.Dir(strings.TrimPrefix(strings.TrimSpace(file), commit+":"))
	dir, err := os.MkdirTemp("", "coordd-before-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	tree := filepath.Join(dir, "tree")
	if _, err := git(ctx, ".", "worktree", "add", "--detach", tree, commit+"^"); err != nil {
		return err
	}
	defer func() {
		_, _ = git(context.WithoutCancel(ctx), ".", "worktree", "remove", "--force", tree)
	}()
	for _, own := range []string{pkg + "/*_test.go", "internal/tests", "testdata"} {
		_, _ = git(ctx, tree, "checkout", commit, "--", own) // it may have none
	}
	fmt.Printf("%s came with %s\n", test, title)
	cmd := exec.CommandContext(ctx, "go", "test", "./"+pkg, "-run", "^"+test+"$", "-count", "1")
	cmd.Dir = tree
	out, err := cmd.CombinedOutput()
	fmt.Printf("%s", out)
	has := func(words string) bool { return strings.Contains(string(out), words) }
	switch {
	case err == nil:
		return errors.New("before that it passes: the fault was mended elsewhere, or needs luck")
	case !has("--- FAIL: "+test) && !has("panic: "):
		return errors.New("before that it does not build, or does not end")
	}
	fmt.Println("before that it fails, as it should")
	return nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}
