// coordd top: the cluster and the load of a node in a terminal.

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/coordd/coordd/internal/observe"
)

const (
	topEvery = time.Second
	topWait  = 5 * time.Second // for one sample
)

// Escape sequences: another screen without a cursor, and back; to its beginning; erase to the end
// of the line, and of the screen.
const (
	screenOn   = "\x1b[?1049h\x1b[?25l"
	screenOff  = "\x1b[?25h\x1b[?1049l"
	screenHome = "\x1b[H"
	eraseLine  = "\x1b[K\r\n"
	eraseRest  = "\x1b[J"
)

func newTop(c console) *cobra.Command {
	cmd := &cobra.Command{Use: "top",
		Short: "Shows members and load of a node, each second; once if not on a terminal"}
	of := addObserver(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		client, addr, err := of.client(c.getenv)
		if err != nil {
			return err
		}
		defer client.Close()
		sampler := observe.NewSampler(client)
		tick := time.NewTicker(topEvery)
		defer tick.Stop()
		file, _ := c.stdout.(*os.File)
		drawn := file != nil && isTerminal(file)
		if drawn {
			fmt.Fprint(c.stdout, screenOn)
			defer fmt.Fprint(c.stdout, screenOff)
		}
		for first := true; ; first = false {
			s, err := sample(ctx, sampler)
			switch {
			case ctx.Err() != nil:
				return nil
			case drawn:
				columns, rows := terminalSize(file)
				drawTop(c.stdout, topText(addr, s, err), columns, rows, c.getenv("NO_COLOR") == "")
			case err != nil:
				return err
			case !first: // now it knows rates
				_, err := io.WriteString(c.stdout, topText(addr, s, nil))
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	}
	return cmd
}

func sample(ctx context.Context, sampler *observe.Sampler) (*observe.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, topWait)
	defer cancel()
	return sampler.Next(ctx)
}

// terminalSize returns the size of a terminal, or a usual one.
func terminalSize(f *os.File) (columns, rows int) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return 80, 24
	}
	return int(size.Col), int(size.Row)
}

// marks begin the verdict: a sign and a color for each level.
var marks = map[string]struct{ sign, color string }{
	observe.OK: {"✓", "\x1b[1;32m"}, observe.Warn: {"▲", "\x1b[1;33m"},
	observe.Down: {"■", "\x1b[1;31m"},
}

// drawTop replaces what is on the screen, line by line, so that it does not flicker.
func drawTop(w io.Writer, text string, columns, rows int, colors bool) {
	var b bytes.Buffer
	b.WriteString(screenHome)
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for _, line := range lines[:min(len(lines), rows-1)] {
		if runes := []rune(line); len(runes) > columns {
			line = string(runes[:columns])
		}
		for _, mark := range marks {
			if colors && strings.HasPrefix(line, mark.sign) {
				line = mark.color + line + "\x1b[0m"
			}
		}
		b.WriteString(line + eraseLine)
	}
	b.WriteString(eraseRest)
	_, _ = w.Write(b.Bytes())
}

// topText describes a sample, or why there is none.
func topText(addr string, s *observe.Sample, err error) string {
	var b strings.Builder
	if err != nil {
		does := "does not answer"
		if answered(err) {
			does = "answers"
		}
		fmt.Fprintf(&b, "coordd top – %s\n\n%s %s %s: %s\n", addr, marks[observe.Down].sign, addr,
			does, observe.Show(err.Error()))
		return b.String()
	}
	at := time.UnixMilli(s.AtMs).Format(time.DateTime)
	fmt.Fprintf(&b, "coordd top – %s at %s, %s\n\n", s.Node.ID, addr, at)
	fmt.Fprintf(&b, "%s %s\n", marks[s.Health.Level].sign, s.Health.Text)
	writeNext(&b, s.Health.Next)
	for _, p := range s.Health.Problems {
		fmt.Fprintf(&b, "  – %s\n", p.Text)
		writeNext(&b, p.Next)
	}
	b.WriteString("\n")
	writeMembers(&b, s)
	writeLoad(&b, s)
	writeMissing(&b, s)
	return b.String()
}

// writeMissing writes what a sample lacks, and why.
func writeMissing(w io.Writer, s *observe.Sample) {
	if len(s.Denied) > 0 {
		fmt.Fprintf(w, "\nNot shown, since the user may not run it: %s\n",
			strings.Join(s.Denied, ", "))
	}
	for _, why := range s.Unanswered {
		fmt.Fprintf(w, "\nNot shown: %s\n", observe.Show(why))
	}
}

// writeNext writes the next act against a problem, if there is one.
func writeNext(w io.Writer, next string) {
	if next != "" {
		fmt.Fprintf(w, "    Next: %s\n", next)
	}
}

func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

func writeMembers(w io.Writer, s *observe.Sample) {
	t := newTable(w)
	fmt.Fprintln(t, "MEMBER\tROLE\tBEHIND\tHEARD\tUPTIME\tVERSION\tCLIENTS AT")
	for _, m := range s.Members {
		role, behind, heard := m.Role, "–", spanText(time.Duration(m.ContactMs)*time.Millisecond)
		switch {
		case m.ID == s.Node.Leader:
			role, heard = "leader", "–"
		case role == "voter":
			role = "follower"
		}
		if m.Behind >= 0 {
			behind = fmt.Sprint(m.Behind)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.ID, role, behind, heard,
			spanText(time.Duration(m.UptimeSec)*time.Second), m.Version, m.Client)
	}
	_ = t.Flush()
}

func writeLoad(w io.Writer, s *observe.Sample) {
	c := &s.Counts
	fmt.Fprintf(w, "\nclients %d, waiting %d   keys %d, with a TTL %d   data %s   memory %s\n",
		c.Clients, c.Blocked, c.Keys, c.Expires, byteText(c.Data), byteText(c.Resident))
	r := s.Rates
	if r == nil {
		return
	}
	fmt.Fprintf(w, "commands %s/s   p50 %s, p99 %s   log entries %s/s   error replies %s/s\n\n",
		rateText(r.Commands), microsText(r.P50Us), microsText(r.P99Us), rateText(r.Entries),
		rateText(r.Errors))
	t := newTable(w)
	fmt.Fprintln(t, "COMMAND\tCALLS/S\tMEAN\tFAILED/S")
	for _, top := range r.Top {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n",
			strings.ToUpper(strings.ReplaceAll(top.Name, "|", " ")), rateText(top.Calls),
			microsText(top.MeanUs), rateText(top.Failed))
	}
	_ = t.Flush()
}
