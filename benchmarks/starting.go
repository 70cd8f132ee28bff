package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// Started is the time that processes need when they start at once on one server.
type Started struct {
	Engine    string
	Processes int
	Bare      StartedTimes // until a connection and one query, as with AUTO_INCREMENT
	Plugin    StartedTimes // until db.Use and the first id
}

// StartedTimes are ms from the signal to start.
type StartedTimes struct {
	Each Figure  // all processes of all rounds
	Last float64 // the last process of a round; the median of the rounds
}

// measureStarting measures all engines. Each start gets new worker ids, because its database is empty.
func measureStarting(ctx context.Context, l *Lab) (all []Started, err error) {
	options := func(engine string) []string {
		if engine == "postgres" {
			return []string{"-c", "max_connections=700"}
		}
		return []string{"--max-connections=700"}
	}
	return all, l.eachServer(ctx, "starting", "", options, func(s *Server) error {
		for _, n := range l.Starts {
			one, err := startRounds(ctx, l, s, n)
			if err != nil {
				return fmt.Errorf("%d processes: %w", n, err)
			}
			all = append(all, one)
		}
		return nil
	})
}

// startRounds starts n processes, with the plugin and without it, in turn.
func startRounds(ctx context.Context, l *Lab, s *Server, n int) (Started, error) {
	rounds := l.StartRounds
	if n < 10 && rounds > 1 { // a round of so few processes is short
		rounds *= 3
	}
	var each, last [2][]float64
	for round := range 2 * rounds {
		kind := (round + round/2) % 2
		l.Tick("starting: %s, %d processes, round %d of %d", s.Name, n, round/2+1, rounds)
		took, err := startAtOnce(ctx, s, n, startTask{Tables: l.StartTables, Plugin: kind == 1})
		if err != nil {
			return Started{}, err
		}
		each[kind] = append(each[kind], took...)
		last[kind] = append(last[kind], quantile(took, 1))
	}
	return Started{s.Title, n, StartedTimes{figureOf(each[0]), quantile(last[0], 0.5)},
		StartedTimes{figureOf(each[1]), quantile(last[1], 0.5)}}, nil
}

// startAtOnce starts n processes, lets them begin at the same moment, and returns the ms that each took.
func startAtOnce(ctx context.Context, s *Server, n int, task startTask) (durations []float64, err error) {
	return durations, s.with(func(d *testkit.Database, _ *gorm.DB) (err error) {
		task.Database = d
		children := make([]*child, n)
		for i := range children {
			if children[i], err = launch(ctx, "start", task); err != nil {
				return err
			}
			defer children[i].Kill()
		}
		for _, c := range children {
			var up bool
			if err := c.read(&up); err != nil {
				return err
			}
		}
		// The moment is in the future, because all processes should have read it before it comes.
		begin := time.Now().Add(20*time.Millisecond + time.Duration(n)*200*time.Microsecond)
		for _, c := range children {
			if err := c.Send(begin.Format(time.RFC3339Nano)); err != nil {
				return err
			}
		}
		for _, c := range children {
			var ms float64
			if err := c.read(&ms); err != nil {
				return err
			}
			durations = append(durations, ms)
		}
		for _, c := range children {
			err = errors.Join(err, c.Stop())
		}
		return err
	})
}

type startTask struct {
	Database *testkit.Database
	Tables   int
	Plugin   bool
}

// startAndReport is the role of a process that starts. It reads the moment to begin, and prints the ms until its
// first id, or without the plugin until the answer to a query.
func startAndReport(task startTask) (err error) {
	models := tables(task.Tables)
	fmt.Println("true")
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return err
	}
	begin, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(line))
	if err != nil {
		return err
	}
	time.Sleep(time.Until(begin))
	db, err := task.Database.Connect(nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, testkit.Close(db)) }()
	if task.Plugin {
		p, err := use(db, uidplugin.WithModels(models...), uidplugin.WithTimeout(time.Minute))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closePlugin(p)) }()
		if _, err := p.NextID(context.Background(), models[0]); err != nil {
			return err
		}
	} else {
		var one int
		if err := db.Raw("SELECT 1").Row().Scan(&one); err != nil {
			return err
		}
	}
	fmt.Println(float64(time.Since(begin).Microseconds()) / 1000)
	<-testkit.InputEnded()
	return nil
}

func startingTable(all []Started) string {
	most := slices.MaxFunc(all, func(a, b Started) int { return cmp.Compare(a.Processes, b.Processes) }).Processes
	t := table{{fmt.Sprintf("%d processes", most), "connection, ms", "first id, ms", "the last one, ms"}}
	for _, s := range all {
		if s.Processes == most { // the chart has the other numbers
			t.add(s.Engine, s.Bare.Each.median(), s.Plugin.Each.median(), number(s.Plugin.Last))
		}
	}
	return t.String()
}

func drawStarting(all []Started, folder string) error {
	var lines []series
	for i, engine := range groups(all, func(s Started) string { return s.Engine }) {
		id := series{name: engine[0].Engine + ", first id", colour: i}
		connection := series{name: engine[0].Engine + ", connection", colour: i, dash: true}
		for _, s := range engine {
			id.x, id.y = append(id.x, float64(s.Processes)), append(id.y, s.Plugin.Last)
			connection.y = append(connection.y, s.Bare.Last)
		}
		connection.x = id.x
		lines = append(lines, id, connection)
	}
	return curves(filepath.Join(folder, "starting.svg"), "Processes that start at once: the last one", "processes",
		"ms", true, lines...)
}
