package main

import (
	"errors"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// panels are the plots of a curve.
var panels = []struct {
	title string
	y     func(m *measured) float64
}{
	{"requests per second", func(m *measured) float64 { return m.rate }},
	{"median wait [ms]", func(m *measured) float64 { return m.p50 }},
	{"99 % wait less than [ms]", func(m *measured) float64 { return m.p99 }},
	{"99.9 % wait less than [ms]", func(m *measured) float64 { return m.p999 }},
}

// draw writes an SVG file: a title, the names of the series, and one panel for each of panels, two
// beside each other.
func (c *curve) draw(file string, results []measured) error {
	const columns = 2
	const lineHeight, margin = 0.6 * vg.Centimeter, vg.Centimeter
	rows := len(panels) / columns
	plots := make([][]*plot.Plot, rows)
	legend := plot.NewLegend()
	legend.Top, legend.Left, legend.Padding = true, true, vg.Points(3)
	for i, panel := range panels {
		p := plot.New()
		p.Title.Text = panel.title
		p.X.Label.Text = c.x
		if c.logarithmic() {
			p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		}
		if i == 0 {
			p.Y.Min = 0
		} else {
			p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		}
		p.Title.Padding = vg.Points(6)
		p.Add(plotter.NewGrid())
		for k, s := range c.series {
			var points plotter.XYs
			for j := range results {
				if m := &results[j]; m.server == s.name {
					points = append(points, plotter.XY{X: m.x, Y: panel.y(m)})
				}
			}
			if len(points) == 0 {
				continue
			}
			line, dots, err := plotter.NewLinePoints(points)
			if err != nil {
				return err
			}
			line.Color, line.Width = plotutil.Color(k), vg.Points(1.5)
			dots.Color, dots.Shape = plotutil.Color(k), plotutil.Shape(k)
			p.Add(line, dots)
			if i == 0 {
				legend.Add(s.name, line, dots)
			}
		}
		plots[i/columns] = append(plots[i/columns], p)
	}
	head := margin + vg.Length(2+len(c.series))*lineHeight
	canvas := vgsvg.New(columns*14*vg.Centimeter, head+vg.Length(rows)*10*vg.Centimeter)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Path())
	style := plots[0][0].Title.TextStyle
	style.Font.Size = vg.Points(16)
	all.FillText(style, vg.Point{X: all.Center().X, Y: all.Max.Y - margin}, c.title)
	legend.Draw(draw.Crop(all, 2*margin, 0, 0, -margin-lineHeight))
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: margin, PadY: margin,
		PadTop: head, PadBottom: margin, PadLeft: margin, PadRight: margin}
	for r, row := range plot.Align(plots, tiles, all) {
		for col, area := range row {
			plots[r][col].Draw(area)
		}
	}
	return writeCanvas(file, canvas)
}

// logarithmic reports whether the values of the quantity grow by factors.
func (c *curve) logarithmic() bool {
	points := c.series[0].points
	first, last := points[0].x, points[len(points)-1].x
	return first > 0 && last/first > 20
}

// writeCanvas writes an SVG file.
func writeCanvas(file string, canvas *vgsvg.Canvas) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = canvas.WriteTo(f)
	return err
}
