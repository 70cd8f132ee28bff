package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The colours that change in dark mode: see [themed].
var (
	ink   = color.RGBA{0x1F, 0x23, 0x28, 0xFF}
	paper = color.RGBA{0xFF, 0xFF, 0xFF, 0xFF}
	grid  = color.RGBA{0xD8, 0xDE, 0xE4, 0xFF}
)

// dark are the colours in dark mode.
var dark = map[color.RGBA]string{ink: "#E6EDF3", paper: "#0D1117", grid: "#30363D"}

// palette has colours that can be told apart on white and on black, in the order of series.
var palette = []color.RGBA{
	{0x2F, 0x81, 0xF7, 0xFF}, {0xD2, 0x7B, 0x1E, 0xFF}, {0x2D, 0xA4, 0x4E, 0xFF}, {0xE5, 0x53, 0x4B, 0xFF},
	{0xA3, 0x71, 0xF7, 0xFF}, {0x8B, 0x94, 0x9E, 0xFF}, {0xBF, 0x4B, 0x8A, 0xFF}, {0x1B, 0x9A, 0xAA, 0xFF},
}

// A series is what has one colour, or, if its line is dashed, the same as another one.
type series struct {
	name   string
	x, y   []float64
	low    []float64 // quartiles, of charts that show them; in dots these are of x
	high   []float64
	dash   bool
	colour int // of the palette, plus 1; 0: by the place among the series
}

const chartWidth = 560

// paint returns the colour of a series, which is at a place among others.
func (s *series) paint(place int) color.RGBA {
	if s.colour > 0 {
		place = s.colour - 1
	}
	return palette[place%len(palette)]
}

// newPlot returns an empty chart.
func newPlot(title, x, y string) *plot.Plot {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	p := plot.New()
	p.BackgroundColor = paper
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.Padding, p.Title.TextStyle.Font.Size = 8, 13
	p.Title.TextStyle.Color, p.Legend.TextStyle.Color = ink, ink
	// The colours are on the left of the names, as nobody knows how wide those are in the reader's font.
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, 3
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Label.TextStyle.Color, axis.Tick.Color, axis.Tick.Label.Color = ink, ink, ink, ink
		axis.Tick.Marker = ticks{}
	}
	lines := plotter.NewGrid()
	lines.Horizontal.Color, lines.Vertical.Color = grid, grid
	p.Add(lines)
	return p
}

// ticks are those of the library, or 1, 2, 5, 10 and so on, with numbers that people read.
type ticks struct {
	log  bool
	most float64 // no tick is above it, unless it is 0: there is room for a legend
}

// Ticks implements plot.Ticker.
func (t ticks) Ticks(low, high float64) []plot.Tick {
	var all []plot.Tick
	if t.most > 0 {
		high = t.most
	}
	if !t.log {
		all = plot.DefaultTicks{}.Ticks(low, high)
	} else {
		for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
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
	}
	for i, tick := range all {
		if tick.Label != "" {
			all[i].Label = number(tick.Value)
		}
	}
	return all
}

// logarithmic makes an axis logarithmic, if all of its values are above 0.
func logarithmic(axis *plot.Axis) {
	if axis.Min > 0 && axis.Max > axis.Min {
		axis.Scale, axis.Tick.Marker = plot.LogScale{}, ticks{log: true, most: axis.Max * 1.001}
	}
}

// dots draws a row for each name, on a logarithmic scale, with a dot for the median of each series and a line between
// the quartiles. The names are from top to bottom.
func dots(file, title, unit string, names []string, all []series) error {
	p := newPlot(title, unit, "")
	p.Y.Tick.Length, p.Y.LineStyle.Width = 0, 0
	for i, s := range all {
		points := make(plotter.XYs, 0, len(s.x))
		bars := plotter.XErrors{}
		for j, x := range s.x {
			if x <= 0 || math.IsInf(x, 0) {
				continue
			}
			y := float64(len(names)-1-j) + 0.15*(float64(len(all)-1)/2-float64(i))
			points = append(points, plotter.XY{X: x, Y: y})
			if s.low != nil {
				bars = append(bars, struct{ Low, High float64 }{s.low[j] - x, s.high[j] - x})
			} else {
				bars = append(bars, struct{ Low, High float64 }{})
			}
		}
		spread, err := plotter.NewXErrorBars(struct {
			plotter.XYer
			plotter.XErrorer
		}{points, bars})
		if err != nil {
			return err
		}
		spread.Color, spread.CapWidth, spread.Width = s.paint(i), 0, 1.5
		marks, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		marks.GlyphStyle = draw.GlyphStyle{Color: s.paint(i), Radius: 3, Shape: draw.CircleGlyph{}}
		p.Add(spread, marks)
		if len(all) > 1 {
			p.Legend.Add(s.name, marks)
		}
	}
	upwards := make([]string, len(names))
	for i, name := range names {
		upwards[len(names)-1-i] = name
	}
	p.NominalY(upwards...)
	p.Y.Tick.Label.Color, p.Y.Min, p.Y.Max = ink, -0.6, float64(len(names))-0.4
	p.X.Padding = 4
	p.X.Min, p.X.Max = p.X.Min*0.7, p.X.Max*1.4
	logarithmic(&p.X)
	if len(all) > 1 { // above the rows
		p.Y.Max += 0.95 * float64(len(all))
		p.Legend.XOffs = 10
	}
	return save(p, file, vg.Length(80+17*len(names)+17*len(all)))
}

// A scale says which axes of curves are logarithmic.
type scale struct{ x, y bool }

// curves draws lines.
func curves(file, title, x, y string, axes scale, all []series) error {
	p := newPlot(title, x, y)
	for i, s := range all {
		points := make(plotter.XYs, 0, len(s.x))
		for j := range s.x {
			if !(axes.y && s.y[j] <= 0) {
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
		line.Color, line.Width = s.paint(i), 1.5
		if s.dash {
			line.Dashes = []vg.Length{4, 3}
		}
		p.Add(line)
		p.Legend.Add(s.name, line)
		if len(points) < 10 {
			marks.GlyphStyle = draw.GlyphStyle{Color: line.Color, Radius: 2.5, Shape: draw.CircleGlyph{}}
			p.Add(marks)
		}
	}
	if axes.x {
		logarithmic(&p.X)
	} else {
		p.X.Min = 0
	}
	if axes.y {
		logarithmic(&p.Y)
	} else {
		p.Y.Min = 0
	}
	leaveRoom(p, all)
	return save(p, file, 260)
}

// leaveRoom leaves room for the legend, on the right of the lines.
func leaveRoom(p *plot.Plot, all []series) {
	longest := 0
	for _, s := range all {
		longest = max(longest, len(s.name))
	}
	room := float64(longest*8 + 40)
	part := (room + 40) / chartWidth
	p.Legend.XOffs = vg.Length(chartWidth - 45 - room)
	if _, ok := p.X.Scale.(plot.LogScale); ok {
		p.X.Max *= math.Pow(p.X.Max/p.X.Min, part/(1-part))
		return
	}
	p.X.Tick.Marker = ticks{most: p.X.Max}
	p.X.Max += (p.X.Max - p.X.Min) * part / (1 - part)
}

// histogram draws groups of bars, one group for each class.
func histogram(file, title, x, y string, classes []string, all []series) error {
	p := newPlot(title, x, y)
	width := vg.Points(480 / float64(len(classes)*(len(all)+1)))
	for i, s := range all {
		bars, err := plotter.NewBarChart(plotter.Values(s.y), width)
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = s.paint(i), 0
		bars.Offset = width * vg.Length(float64(i)-float64(len(all)-1)/2)
		p.Add(bars)
		p.Legend.Add(s.name, bars)
	}
	p.NominalX(classes...)
	p.X.Tick.Label.Color = ink
	p.X.Min, p.X.Max, p.Y.Min = -0.6, float64(len(classes))-0.4, 0
	p.Y.Tick.Marker = ticks{most: p.Y.Max * 1.1}
	p.Y.Max *= 1 + 0.09*float64(len(all)) // the legend is above the bars
	p.Legend.XOffs = 10
	return save(p, file, 300)
}

// save writes a chart of a height.
func save(p *plot.Plot, file string, height vg.Length) error {
	c := vgsvg.New(chartWidth, height)
	p.Draw(draw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(themed(b.String())), 0o666)
}

// themed returns an SVG file that follows the reader's dark mode. Its background changes together with its text, so it
// can be read whatever is around it. A program that knows no media queries shows it on white.
func themed(svg string) string {
	var rules strings.Builder
	for _, c := range []color.RGBA{ink, paper, grid} {
		light := fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B)
		for _, property := range []string{"fill", "stroke"} {
			fmt.Fprintf(&rules, `[style*="%s:%s"]{%s:%s!important}`, property, light, property, dark[c])
		}
	}
	head, rest, _ := strings.Cut(svg, "<svg")
	tag, rest, _ := strings.Cut(rest, ">")
	// Readers without the font get one in which texts are as wide.
	rest = strings.ReplaceAll(rest, ":Liberation Sans", ":Liberation Sans,Arial,Helvetica,sans-serif")
	return head + "<svg" + tag + "><style>@media(prefers-color-scheme:dark){" + rules.String() + "}</style>" + rest
}

// number writes a number with three significant digits, and commas between thousands.
func number(v float64) string {
	if v < 0 {
		return "-" + number(-v)
	}
	if v == 0 || v < 0.0005 {
		return "0"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(v))))
	power := math.Pow(10, 2-math.Floor(math.Log10(v)))
	text := fmt.Sprintf("%.*f", digits, math.Round(v*power)/power)
	whole, part, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if part = strings.TrimRight(part, "0"); part != "" {
		whole += "." + part
	}
	return whole
}
