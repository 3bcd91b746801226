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
// larger one, with the rates behind them. The names stand above the bars, since the fonts of who
// looks at the picture are not known.
func drawCopies(file string, results []result) error {
	const bar = 0.5 * vg.Centimeter
	p := plot.New()
	p.HideAxes()
	p.X.Min, p.X.Max = 0, 1.12
	count := 0
	var ours, redis, etcd plotter.Values
	var names, rates plotter.XYLabels
	label := func(to *plotter.XYLabels, x, y float64, text string) {
		to.XYs, to.Labels = append(to.XYs, plotter.XY{X: x, Y: y}), append(to.Labels, text)
	}
	for i := len(results) - 1; i >= 0; i-- { // the first is at the top
		m := &results[i]
		if m.most {
			continue
		}
		at := float64(count)
		count++
		a, b := medianValue(m.ours), medianValue(m.theirs)
		largest := max(a, b)
		theirs, absent := &redis, &etcd
		if m.against == threeEtcd {
			theirs, absent = absent, theirs
		}
		ours, *theirs, *absent = append(ours, a/largest), append(*theirs, b/largest),
			append(*absent, 0)
		label(&names, 0, at+0.37, m.name)
		label(&rates, a/largest, at+0.08, thousands(a))
		label(&rates, b/largest, at-0.22, thousands(b))
	}
	legend := plot.NewLegend()
	legend.Top, legend.Left, legend.Padding = true, true, vg.Points(3)
	for i, series := range []struct {
		name   string
		values plotter.Values
		offset vg.Length
	}{
		{"coordd, 3 nodes", ours, bar / 2},
		{"redis-server and 2 replicas, appendfsync always, WAIT 1 behind each request", redis,
			-bar / 2},
		{"etcd, 3 nodes", etcd, -bar / 2},
	} {
		bars, err := plotter.NewBarChart(series.values, bar)
		if err != nil {
			return err
		}
		bars.Horizontal, bars.Offset = true, series.offset
		bars.Color, bars.LineStyle.Width = plotutil.Color(i), 0
		p.Add(bars)
		legend.Add(series.name, bars)
	}
	for _, of := range []plotter.XYLabels{names, rates} {
		labels, err := plotter.NewLabels(of)
		if err != nil {
			return err
		}
		labels.Offset = vg.Point{X: vg.Points(3)}
		p.Add(labels)
	}
	p.Y.Min, p.Y.Max = -0.5, float64(count)-0.3
	const head = 3.8 * vg.Centimeter
	canvas := vgsvg.New(22*vg.Centimeter, head+vg.Length(count)*1.8*vg.Centimeter)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Path())
	style := p.Title.TextStyle
	style.Font.Size, style.XAlign = vg.Points(14), text.XLeft
	all.FillText(style, vg.Point{X: vg.Centimeter, Y: all.Max.Y - vg.Centimeter},
		"Requests a second that are on two of three disks when they are answered")
	legend.Draw(draw.Crop(all, vg.Centimeter, 0, 0, -1.8*vg.Centimeter))
	p.Draw(draw.Crop(all, vg.Centimeter, -vg.Points(8), vg.Points(8), -head))
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
