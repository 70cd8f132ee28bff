package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The colours that change in dark mode, see [save].
var (
	ink   = color.RGBA{0x1F, 0x23, 0x28, 0xFF}
	paper = color.RGBA{0xFF, 0xFF, 0xFF, 0xFF}
	grid  = color.RGBA{0xD8, 0xDE, 0xE4, 0xFF}
)

// dark are the colours in dark mode.
var dark = map[color.RGBA]string{ink: "#E6EDF3", paper: "#0D1117", grid: "#30363D"}

// palette has the colours of series. They are easy to tell apart on white and on black.
var palette = []color.RGBA{
	{0x2F, 0x81, 0xF7, 0xFF}, {0xD2, 0x7B, 0x1E, 0xFF}, {0x2D, 0xA4, 0x4E, 0xFF}, {0xE5, 0x53, 0x4B, 0xFF},
	{0xA3, 0x71, 0xF7, 0xFF},
}

// A series has the dots, the line or the bars of one colour.
type series struct {
	name      string
	x, y      []float64
	low, high []float64 // quartiles around x; only for dots
	dash      bool
	colour    int // of the palette; only for curves
}

func (s *series) add(f Figure) {
	s.x, s.low, s.high = append(s.x, f.Median), append(s.low, f.Low), append(s.high, f.High)
}

// A chart is a plot with its legend below it, because a legend inside would hide lines.
type chart struct {
	*plot.Plot
	legend plot.Legend
	names  int // in the legend
}

func newChart(title, x, y string) *chart {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	c := &chart{Plot: plot.New(), legend: plot.NewLegend()}
	c.BackgroundColor = paper
	c.Title.Text, c.X.Label.Text, c.Y.Label.Text = title, x, y
	c.Title.Padding, c.Title.TextStyle.Font.Size = 8, 13
	c.Title.TextStyle.Color, c.legend.TextStyle.Color = ink, ink
	c.legend.Top, c.legend.Left, c.legend.XOffs, c.legend.Padding = true, true, 60, 3
	for _, axis := range []*plot.Axis{&c.X, &c.Y} {
		axis.Color, axis.Label.TextStyle.Color, axis.Tick.Color, axis.Tick.Label.Color = ink, ink, ink, ink
		axis.Tick.Marker = ticks(plot.DefaultTicks{}.Ticks)
	}
	lines := plotter.NewGrid()
	lines.Horizontal.Color, lines.Vertical.Color = grid, grid
	c.Add(lines)
	return c
}

func (c *chart) name(name string, thumbnail plot.Thumbnailer) {
	c.legend.Add(name, thumbnail)
	c.names++
}

// ticks is like the function other, but its labels look like the numbers in the tables.
func ticks(other plot.TickerFunc) plot.TickerFunc {
	return func(low, high float64) []plot.Tick {
		all := other(low, high)
		for i, tick := range all {
			if tick.Label != "" {
				all[i].Label = number(tick.Value)
			}
		}
		return all
	}
}

// logTicks returns ticks at 1, 2, 5, 10 and so on. The label "x" stands for the number, which [ticks] fills in.
func logTicks(low, high float64) (all []plot.Tick) {
	for e := math.Floor(math.Log10(low)); e <= math.Log10(high); e++ {
		for _, step := range []float64{1, 2, 5} {
			tick := plot.Tick{Value: step * math.Pow(10, e)}
			if step == 1 || high/low < 100 {
				tick.Label = "x"
			}
			if tick.Value >= low*0.999 && tick.Value <= high*1.001 {
				all = append(all, tick)
			}
		}
	}
	return all
}

// logarithmic makes an axis logarithmic, if all of its values are above 0.
func logarithmic(axis *plot.Axis) {
	if axis.Min > 0 && axis.Max > axis.Min {
		axis.Scale, axis.Tick.Marker = plot.LogScale{}, ticks(logTicks)
	}
}

// dots draws a row for each name, with the median of each series as a dot, and a line between the quartiles.
func dots(file, title, unit string, names []string, all ...series) error {
	c := newChart(title, unit, "")
	for i, s := range all {
		points, bars := plotter.XYs{}, plotter.XErrors{}
		for j, x := range s.x {
			if x > 0 {
				y := float64(len(names)-1-j) + 0.15*(float64(len(all)-1)/2-float64(i))
				points = append(points, plotter.XY{X: x, Y: y})
				bars = append(bars, struct{ Low, High float64 }{s.low[j] - x, s.high[j] - x})
			}
		}
		spread, err := plotter.NewXErrorBars(struct {
			plotter.XYer
			plotter.XErrorer
		}{points, bars})
		if err != nil {
			return err
		}
		spread.Color, spread.CapWidth, spread.Width = palette[i], 0, 1.5
		marks, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		marks.GlyphStyle = draw.GlyphStyle{Color: palette[i], Radius: 3, Shape: draw.CircleGlyph{}}
		c.Add(spread, marks)
		if len(all) > 1 {
			c.name(s.name, marks)
		}
	}
	upwards := slices.Clone(names)
	slices.Reverse(upwards)
	c.NominalY(upwards...)
	c.Y.Tick.Length, c.Y.LineStyle.Width = 0, 0
	c.Y.Tick.Label.Color, c.Y.Min, c.Y.Max = ink, -0.6, float64(len(names))-0.4
	c.X.Padding = 4
	c.X.Min, c.X.Max = c.X.Min*0.7, c.X.Max*1.4
	logarithmic(&c.X)
	return c.save(file, 80+17*len(names))
}

// curves draws lines. If logs is true, axes with positive values only are logarithmic; if it is false, axes begin at
// 0.
func curves(file, title, x, y string, logs bool, all ...series) error {
	c := newChart(title, x, y)
	for _, s := range all {
		points := plotter.XYs{}
		for j := range s.x {
			if !logs || s.y[j] > 0 {
				points = append(points, plotter.XY{X: s.x[j], Y: s.y[j]})
			}
		}
		if len(points) == 0 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, line.Width = palette[s.colour], 1.5
		if s.dash {
			line.Dashes = []vg.Length{4, 3}
		}
		c.Add(line)
		c.name(s.name, line)
		if len(points) < 10 {
			marks.GlyphStyle = draw.GlyphStyle{Color: line.Color, Radius: 2.5, Shape: draw.CircleGlyph{}}
			c.Add(marks)
		}
	}
	for _, axis := range []*plot.Axis{&c.X, &c.Y} {
		if logs {
			logarithmic(axis)
		} else {
			axis.Min = 0
		}
	}
	return c.save(file, 260)
}

// histogram draws groups of bars, one group for each class.
func histogram(file, title, x, y string, classes []string, all ...series) error {
	c := newChart(title, x, y)
	width := vg.Points(480 / float64(len(classes)*(len(all)+1)))
	for i, s := range all {
		bars, err := plotter.NewBarChart(plotter.Values(s.y), width)
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = palette[i], 0
		bars.Offset = width * vg.Length(float64(i)-float64(len(all)-1)/2)
		c.Add(bars)
		c.name(s.name, bars)
	}
	c.NominalX(classes...)
	c.X.Tick.Label.Color = ink
	c.X.Min, c.X.Max, c.Y.Min = -0.6, float64(len(classes))-0.4, 0
	return c.save(file, 240)
}

// save writes an SVG file that follows the reader's dark mode. Programs without media queries show it on white.
func (c *chart) save(file string, height int) error {
	const width = 560
	below := vg.Length(17 * c.names)
	canvas := vgsvg.New(width, vg.Length(height)+below)
	all := draw.New(canvas)
	all.SetColor(paper)
	all.Fill(all.Rectangle.Path())
	c.Draw(draw.Crop(all, 5, -15, below, -3))
	c.legend.Draw(draw.Crop(all, 0, 0, 0, -vg.Length(height)))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	var rules strings.Builder
	for _, c := range []color.RGBA{ink, paper, grid} {
		for _, property := range []string{"fill", "stroke"} {
			fmt.Fprintf(&rules, `[style*="%s:#%02X%02X%02X"]{%[1]s:%[5]s!important}`, property, c.R, c.G, c.B, dark[c])
		}
	}
	head, rest, _ := strings.Cut(b.String(), "<svg")
	tag, rest, _ := strings.Cut(rest, ">")
	// Readers without the font should get another font of the same width.
	rest = strings.ReplaceAll(rest, ":Liberation Sans", ":Liberation Sans,Arial,Helvetica,sans-serif")
	return os.WriteFile(file, []byte(head+"<svg"+tag+"><style>@media(prefers-color-scheme:dark){"+rules.String()+
		"}</style>"+rest), 0o666)
}
