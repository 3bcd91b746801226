package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// programs are processes, each in a process group of its own with what it starts.
type programs struct {
	stop    context.CancelFunc
	reading sync.WaitGroup
}

// start runs a program until ctx ends and calls line with every line that it prints.
func (p *programs) start(ctx context.Context, program, env []string,
	line func(word, rest string)) error {
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.reading.Go(func() {
		read(out, line)
		_ = cmd.Wait() // it is killed at the end
	})
	return nil
}

func read(r io.Reader, line func(word, rest string)) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		line(word, rest)
	}
}

// end kills the programs and what they started, and waits for them.
func (p *programs) end() {
	p.stop()
	p.reading.Wait()
}
