package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	// beside the primary's disk one replica's has what is answered
	threeCopies = "redis, 3 copies"
	threeEtcd   = "etcd, 3 nodes"
)

// copies are the rows beside servers that keep as many copies as three nodes of coordd.
var copies = []row{
	onTwoDisks("fresh locks on two disks, 1 client", freshLocks(1, 1), 1.2),
	onTwoDisks("fresh locks on two disks, 50 clients", freshLocks(50, 1), 1.5),
	onTwoDisks("fresh locks on two disks, 200 clients", freshLocks(200, 1), 1.5),
	onTwoDisks("lock and EVALSHA release on two disks, 50 clients", lockAndRelease(50), 1.5),
	onTwoDisks("reentrant lock and unlock on two disks, 50 clients", reentrant(50), 1.5),
	onTwoDisks("sliding window on two disks, 100 keys, 50 clients", windows(50, 1), 1.5),
	besideEtcd("lock and EVALSHA release, 50 clients", lockAndRelease(50), 50, 8),
	besideEtcd("lock and release, 1,000 clients", lockAndDelete(1000), 1000, 10),
	{name: "lock and release, 1,000 clients: p99", unit: "ms",
		ours:   p99(rate(three, lockAndDelete(1000))),
		theirs: p99(etcdLocks(1000)), against: threeEtcd, wanted: 0.1, most: true},
}

// onTwoDisks compares requests that two of three disks have when they are answered. On Redis a WAIT
// follows each.
func onTwoDisks(name string, ld closedLoop, wanted float64) row {
	theirs := ld
	theirs.behind = []string{"WAIT", "1", "0"}
	return row{name: name, unit: "/s", ours: rate(three, ld), theirs: rate(replicated, theirs),
		against: threeCopies, wanted: wanted}
}

// besideEtcd compares locks that are taken and released with those that etcd's transactions take.
func besideEtcd(name string, ld load, clients int, wanted float64) row {
	return row{name: name, unit: "/s", ours: rate(three, ld), theirs: etcdLocks(clients),
		against: threeEtcd, wanted: wanted}
}

// measureCopies writes copies.csv and a picture of it.
func measureCopies(s *servers, dir string, rounds int, work time.Duration) error {
	results, err := table(s, copies, "", rounds, work)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "copies")
	return errors.Join(writeCopies(file+".csv", results), drawCopies(file+".svg", results))
}

var copiesHead = []string{"work", "unit", "server", "round", "value", "p50_ms", "p99_ms", "cpu_us",
	"leader_cpu_us"}

func writeCopies(file string, results []result) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := csv.NewWriter(f)
	lines := [][]string{copiesHead}
	for _, m := range results {
		for _, side := range []struct {
			server   string
			outcomes []outcome
		}{{"coordd", m.ours}, {m.against, m.theirs}} {
			for i := range side.outcomes {
				o := &side.outcomes[i]
				lines = append(lines, []string{m.name, m.unit, side.server, strconv.Itoa(i + 1),
					number(o.value), number(milliseconds(o.wait(0.5))),
					number(milliseconds(o.wait(0.99))),
					number(microseconds(o.cpu)), number(microseconds(o.own))})
			}
		}
	}
	return w.WriteAll(lines)
}

// drawCopies draws a pair of bars for each row that counts requests: both rates as shares of the
// larger one, with the rates beside them.
func drawCopies(file string, results []result) error {
	p := plot.New()
	p.Title.Text = "Requests a second that two of three disks have when they are answered"
	p.Title.Padding = vg.Points(8)
	p.HideX()
	p.Y.Width = 0
	p.Y.Tick.Length = 0
	p.X.Min, p.X.Max = 0, 1.2
	bar := 0.45 * vg.Centimeter
	names := make([]string, 0, len(results))
	var ours, redis, etcd plotter.Values
	var labels plotter.XYLabels
	for i := len(results) - 1; i >= 0; i-- { // the first is at the top
		m := &results[i]
		if m.most {
			continue
		}
		at := float64(len(names))
		names = append(names, m.name)
		a, b := medianValue(m.ours), medianValue(m.theirs)
		largest := max(a, b)
		ours = append(ours, a/largest)
		shares := []*plotter.Values{&redis, &etcd}
		if m.against == threeEtcd {
			shares[0], shares[1] = shares[1], shares[0]
		}
		*shares[0] = append(*shares[0], b/largest)
		*shares[1] = append(*shares[1], 0)
		labels.XYs = append(labels.XYs, plotter.XY{X: a / largest, Y: at + 0.2},
			plotter.XY{X: b / largest, Y: at - 0.2})
		labels.Labels = append(labels.Labels, thousands(a), thousands(b))
	}
	p.Legend.Top, p.Legend.Padding = true, vg.Points(3)
	for i, series := range []struct {
		name   string
		values plotter.Values
		offset vg.Length
	}{
		{"coordd, 3 nodes", ours, bar / 2},
		{"redis-server and 2 replicas, appendfsync always, WAIT 1", redis, -bar / 2},
		{"etcd, 3 nodes", etcd, -bar / 2},
	} {
		bars, err := plotter.NewBarChart(series.values, bar)
		if err != nil {
			return err
		}
		bars.Horizontal, bars.Offset = true, series.offset
		bars.Color, bars.LineStyle.Width = plotutil.Color(i), 0
		p.Add(bars)
		p.Legend.Add(series.name, bars)
	}
	rates, err := plotter.NewLabels(labels)
	if err != nil {
		return err
	}
	rates.Offset = vg.Point{X: vg.Points(4)}
	for i := range rates.TextStyle {
		rates.TextStyle[i].YAlign = text.YCenter
	}
	p.Add(rates)
	p.NominalY(names...)
	p.Y.Tick.Label.XAlign = text.XRight
	canvas := vgsvg.New(26*vg.Centimeter, 3*vg.Centimeter+vg.Length(len(names))*1.4*vg.Centimeter)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Path())
	p.Draw(draw.Crop(all, vg.Points(8), -vg.Points(8), vg.Points(8), -vg.Points(8)))
	return writeCanvas(file, canvas)
}

func medianValue(list []outcome) float64 {
	var values []float64
	for _, o := range list {
		values = append(values, o.value)
	}
	return median(values)
}

// thousands writes a rate with three digits that count, and commas.
func thousands(rate float64) string {
	unit := 1
	for rate/float64(unit) >= 1000 {
		unit *= 10
	}
	n := int(rate/float64(unit)+0.5) * unit
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}
