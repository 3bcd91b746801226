package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// tail is something that happens while 50 clients take locks at 70 % of the rate that they reach.
type tail struct {
	name string
	// before prepares the cluster; may be nil
	before func(d *disturbed) error
	// meanwhile runs beside the load, which lasts for work; may be nil
	meanwhile func(d *disturbed, work time.Duration) error
	follower  bool     // the clients are connected to a follower, which nothing happens to
	of        serverOf // the servers
	keys      int      // in the database besides
}

// disturbed is the cluster that a tail is measured on.
type disturbed struct {
	s                *servers
	c                *cluster
	leader           *node
	serving, another *node // followers
}

var everySnapshot = tail{name: "each node writes a snapshot", of: three, keys: tailKeys,
	meanwhile: func(d *disturbed, work time.Duration) error {
		for _, n := range d.c.nodes {
			time.Sleep(work / 4)
			if err := n.snapshot(); err != nil {
				return err
			}
		}
		return nil
	}}

var tails = []tail{
	{name: "nothing"},
	everySnapshot,
	{name: "the leader writes snapshots", meanwhile: func(d *disturbed, work time.Duration) error {
		return snapshots(d.leader, work)
	}},
	{name: "a follower writes snapshots", meanwhile: func(d *disturbed, work time.Duration) error {
		return snapshots(d.another, work)
	}},
	{name: "a follower has half of its time",
		meanwhile: func(d *disturbed, work time.Duration) error {
			return d.another.halfOfTheTime(10*time.Millisecond, work)
		}},
	{name: "a follower is dead", before: func(d *disturbed) error {
		d.another.end(syscall.SIGKILL)
		return nil
	}},
	{name: "the others restart", follower: true,
		meanwhile: func(d *disturbed, work time.Duration) error {
			for _, n := range []*node{d.another, d.leader} {
				time.Sleep(work / 3)
				n.end(syscall.SIGTERM)
				if err := d.s.start(&cluster{nodes: []*node{n}}); err != nil {
					return err
				}
			}
			return nil
		}},
	{name: "a follower gets a snapshot", before: func(d *disturbed) error {
		d.another.end(syscall.SIGKILL)
		return nil
	}, meanwhile: func(d *disturbed, work time.Duration) error {
		time.Sleep(work / 4)
		if err := d.leader.snapshot(); err != nil {
			return err
		}
		return d.s.start(&cluster{nodes: []*node{d.another}})
	}},
}

// snapshots has a node write three snapshots while the load lasts.
func snapshots(n *node, work time.Duration) error {
	for range 3 {
		time.Sleep(work / 4)
		if err := n.snapshot(); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) snapshot() error {
	v, err := call(n.port, "RAFT", "SNAPSHOT")
	if err == nil && v.IsError() {
		err = errors.New(v.Text)
	}
	return err
}

// halfOfTheTime stops a node again and again, for as long as it runs in between.
func (n *node) halfOfTheTime(piece, work time.Duration) error {
	p := n.cmd.Process
	for end := time.Now().Add(work); time.Now().Before(end); time.Sleep(piece) {
		if err := p.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		time.Sleep(piece)
		if err := p.Signal(syscall.SIGCONT); err != nil {
			return err
		}
	}
	return nil
}

// end ends a process by a signal.
func (n *node) end(by syscall.Signal) {
	_ = n.cmd.Process.Signal(by)
	_ = n.cmd.Wait() // it was told to end
}

const (
	tailKeys  = 300_000
	tailLasts = 8 // times work
)

// seventyPercent returns that share of the rate that 50 clients reach.
func seventyPercent(s *servers, of serverOf, work time.Duration) (float64, error) {
	t, err := of(s)
	if err != nil {
		return 0, err
	}
	peak, err := measure(freshLocks(50, 1), t, work)
	return 0.7 * peak.value, err
}

// snapshotTail measures p99.9/p50 while each node writes a snapshot.
func snapshotTail(s *servers, work time.Duration) (outcome, error) {
	rate, err := seventyPercent(s, three, work)
	if err != nil {
		return outcome{}, err
	}
	o, _, err := everySnapshot.measure(s, rate, tailLasts*work)
	o.value = float64(o.wait(0.999)) / float64(o.wait(0.5))
	return o, err
}

// measureTails measures the tails, prints a table, and draws the longest wait in each window.
func measureTails(s *servers, dir, only string, work time.Duration) error {
	rate, err := seventyPercent(s, three, work)
	if err != nil {
		return err
	}
	fmt.Printf("%.0f locks a second, each case %v, among %d other keys; waits [ms]\n\n"+
		"| meanwhile | p50 | p99 | p99.9 | longest | p99.9/p50 | errors |\n"+
		"|---|---|---|---|---|---|---|\n", rate, tailLasts*work, tailKeys)
	measured := map[string]outcome{}
	for _, c := range tails {
		if !strings.Contains(c.name, only) {
			continue
		}
		c.of, c.keys = three, tailKeys
		o, failed, err := c.measure(s, rate, tailLasts*work)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		measured[c.name] = o
		ms := func(q float64) float64 { return milliseconds(o.wait(q)) }
		fmt.Printf("| %s | %.3g | %.3g | %.3g | %.3g | %.3g | %d |\n", c.name, ms(0.5), ms(0.99),
			ms(0.999), ms(1), ms(0.999)/ms(0.5), failed)
	}
	if only != "" {
		return nil
	}
	file := filepath.Join(dir, "tails")
	return errors.Join(writeTails(file+".csv", measured), drawTails(file+".svg", measured))
}

func (c *tail) measure(s *servers, rate float64, work time.Duration) (outcome, int, error) {
	failed := 0
	o, err := alone(c.of, func(s *servers, t *target) (o outcome, err error) {
		d := &disturbed{s: s, c: t.of}
		if d.leader, err = t.of.leader(); err != nil {
			return o, err
		}
		for _, n := range t.of.nodes {
			switch {
			case n == d.leader:
			case d.serving == nil:
				d.serving = n
			default:
				d.another = n
			}
		}
		if c.before != nil {
			if err := c.before(d); err != nil {
				return o, err
			}
		}
		ld := openLoop{clients: 50, rate: rate, keys: c.keys, failed: &failed}
		ended := make(chan error, 1)
		if ld.meanwhile = func() { ended <- c.meanwhile(d, work) }; c.meanwhile == nil {
			ld.meanwhile = nil
			ended <- nil
		}
		at := &target{t.name, d.leader.port, t.of}
		if c.follower {
			at.port = d.serving.port
		}
		o, err = measure(ld, at, work)
		return o, errors.Join(err, <-ended)
	})(s, work)
	return o, failed, err
}

func writeTails(file string, measured map[string]outcome) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := [][]string{{"meanwhile", "second", "longest_ms"}}
	for _, c := range tails {
		o := measured[c.name]
		for i, d := range o.longest {
			lines = append(lines, []string{c.name,
				strconv.FormatFloat(float64(i)*window.Seconds(), 'f', 1, 64),
				number(milliseconds(d))})
		}
	}
	return csv.NewWriter(f).WriteAll(lines)
}

// drawTails draws a panel for each tail, all with the same axes.
func drawTails(file string, measured map[string]outcome) (err error) {
	const columns = 2
	rows := (len(tails) + columns - 1) / columns
	plots := make([][]*plot.Plot, rows)
	highest := 1.0
	for _, c := range tails {
		o := measured[c.name]
		for _, d := range o.longest {
			highest = max(highest, milliseconds(d))
		}
	}
	for i, c := range tails {
		p := plot.New()
		p.Title.Text = c.name
		p.Title.Padding = vg.Points(6)
		p.X.Label.Text, p.Y.Label.Text = "seconds", "longest wait in 0.1 s [ms]"
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		p.Add(plotter.NewGrid())
		o := measured[c.name]
		var points plotter.XYs
		for j, d := range o.longest {
			if d > 0 {
				points = append(points, plotter.XY{X: float64(j) * window.Seconds(),
					Y: milliseconds(d)})
			}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.Color, line.Width = plotutil.Color(0), vg.Points(1)
		p.Add(line)
		p.Y.Min, p.Y.Max = 1, highest*1.1
		plots[i/columns] = append(plots[i/columns], p)
	}
	canvas := vgsvg.New(columns*14*vg.Centimeter, vg.Length(rows)*7*vg.Centimeter)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Path())
	const margin = vg.Centimeter
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: margin, PadY: margin, PadTop: margin,
		PadBottom: margin, PadLeft: margin, PadRight: margin}
	for r, row := range plot.Align(plots, tiles, all) {
		for col, area := range row {
			plots[r][col].Draw(area)
		}
	}
	return writeCanvas(file, canvas)
}
