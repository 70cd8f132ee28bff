package workernode

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/uidplugin/uidplugin/generator"
)

// The picture of a run: docs/simulation.svg. Its colours are readable on white and on black, and its texts follow the
// reader's setting.

const (
	simLeft, simWidth = 100, 660 // of the area in which the lines are
	simHeight         = 190      // of one panel
)

// A simPanel is one chart of the picture.
type simPanel struct {
	Title string
	Top   int
	Grid  []simLabel // horizontal lines
	Lines []simLine
}

type simLabel struct {
	Y    float64
	Text string
}

// A simLine is a line of a chart. X and Y are where its name is.
type simLine struct {
	Class, Name, Points string
	X                   int
}

var simTemplate = template.Must(template.New("").Funcs(template.FuncMap{"add": func(a, b int) int { return a + b }}).Parse(
	`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 600" role="img" font-family="system-ui, sans-serif" font-size="13">
<title>{{.Title}}</title>
<style>
text { fill: #1f2328 } .grid { stroke: #8b949e; stroke-opacity: .35 } .line { fill: none; stroke-width: 2 }
.used { stroke: #1f6feb } .forecast { stroke: #d1570a; stroke-dasharray: 7 4 } .limit { stroke: #8b949e; stroke-dasharray: 2 4 }
.title { font-weight: 600; font-size: 15px }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .used { stroke: #58a6ff } .forecast { stroke: #ff9b4a } }
</style>
{{range .Panels}}<g transform="translate({{$.Left}} {{.Top}})">
<text class="title" x="0" y="-34">{{.Title}}</text>
{{range .Grid}}<line class="grid" x1="0" x2="{{$.Width}}" y1="{{.Y}}" y2="{{.Y}}"/><text x="-8" y="{{.Y}}" dy="4" text-anchor="end">{{.Text}}</text>
{{end}}{{range .Lines}}<polyline class="line {{.Class}}" points="{{.Points}}"/><line class="line {{.Class}}" x1="{{.X}}" x2="{{add .X 26}}" y1="-15" y2="-15"/><text x="{{add .X 32}}" y="-11">{{.Name}}</text>
{{end}}{{range $.Years}}<text x="{{.Y}}" y="{{$.Below}}" text-anchor="middle">{{.Text}}</text>
{{end}}</g>
{{end}}</svg>
`))

// chart returns the picture as SVG.
func (r *simRun) chart() (string, error) {
	years := float64(r.days) / simYear
	x := func(day float64) float64 { return math.Round(10*simWidth*day/float64(r.days)) / 10 }
	line := func(y func(simPoint) float64) string {
		var b strings.Builder
		for i, p := range r.points {
			if i%(len(r.points)/300+1) == 0 || i == len(r.points)-1 {
				fmt.Fprintf(&b, "%v,%v ", x(float64(p.day+1)), math.Round(10*(simHeight-y(p)))/10)
			}
		}
		return strings.TrimSpace(b.String())
	}
	most := float64(r.layout.MaxWorkerID())
	linear := func(n int64) float64 { return simHeight * float64(n) / (1.1 * most) }
	log := func(n int64) float64 { return simHeight * (math.Log10(max(float64(n), 1e3)) - 3) / 5 }
	first := simPanel{Title: "Worker ids", Top: 60, Lines: []simLine{
		{"limit", "all of the layout", line(func(simPoint) float64 { return linear(r.layout.MaxWorkerID()) }), 400},
		{"forecast", "forecast of Plan", line(func(p simPoint) float64 { return linear(p.forecast) }), 190},
		{"used", "given out", line(func(p simPoint) float64 { return linear(p.used) }), 0},
	}}
	for n := int64(0); n <= 250_000; n += 50_000 {
		first.Grid = append(first.Grid, simLabel{math.Round(10*(simHeight-linear(n))) / 10, thousands(n)})
	}
	second := simPanel{Title: "Rows of WORKER_SESSION (logarithmic)", Top: 360, Lines: []simLine{
		{"forecast", "none deleted", line(func(p simPoint) float64 { return log(p.sessions) }), 190},
		{"used", "older than 90 days pruned", line(func(p simPoint) float64 { return log(p.keptSessions) }), 0},
	}}
	second.Lines[0].X = 280
	for n := int64(1_000); n <= 100_000_000; n *= 10 {
		second.Grid = append(second.Grid, simLabel{math.Round(10*(simHeight-log(n))) / 10, thousands(n)})
	}
	step, labels := max(1, math.Ceil(years/6/5)*5), []simLabel(nil)
	for y := 0.0; y <= years+0.01; y += step {
		text := "year " + strconv.Itoa(int(y))
		labels = append(labels, simLabel{x(y * simYear), text})
	}
	var b strings.Builder
	err := simTemplate.Execute(&b, map[string]any{
		"Title":  fmt.Sprintf("1,000 processes with 200 tables each, over %.0f years: worker ids and sessions", years),
		"Panels": []simPanel{first, second}, "Years": labels, "Left": simLeft, "Width": simWidth, "Below": simHeight + 22,
	})
	return b.String(), err
}

// thousands writes a number with commas.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// TestSimulationChart_HasEachLine: the picture has no number that is none, and all lines in their places.
func TestSimulationChart_HasEachLine(t *testing.T) {
	t.Parallel()

	r := &simRun{simWorld: &simWorld{layout: generator.DefaultLayout()}, days: 3653}
	for day := range 3653 {
		n := int64(day)
		r.points = append(r.points, simPoint{day: day, used: 60 * n, forecast: 70 * n, sessions: 4000 * n, keptSessions: min(4000*n, 360_000)})
	}
	svg, err := r.chart()
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(svg, "<polyline"); n != 5 || strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") || strings.Contains(svg, `points=""`) {
		t.Errorf("%d lines:\n%s", n, svg)
	}
	for _, text := range []string{"250,000", "100,000,000", ">year 0<", ">year 10<", "over 10 years", "660,45.6", "prefers-color-scheme: dark"} {
		if !strings.Contains(svg, text) {
			t.Errorf("the picture has no %q:\n%s", text, svg)
		}
	}
}
