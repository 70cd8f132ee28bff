package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// Starting is how long processes that start at once take until their first id.
type Starting struct {
	Tables int
	Runs   []StartedRun
}

// StartedRun is a number of processes on one server.
type StartedRun struct {
	Engine, Version string
	Missing         string
	Processes       int
	Bare            StartedTimes // a connection and one query: what AUTO_INCREMENT needs
	Plugin          StartedTimes // db.Use and the first id
}

// StartedTimes are ms from the signal to start.
type StartedTimes struct {
	Each Figure  // all processes of all rounds
	Last float64 // the last process of a round; the median of the rounds
}

// measureStarting measures all engines. Each start has an empty database, and so new worker ids.
func measureStarting(ctx context.Context, l *Lab) (*Starting, error) {
	all := &Starting{Tables: l.StartTables}
	for _, engine := range l.Engines {
		s, err := l.Serve(ctx, engine, "", connections(engine)...)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			l.Say("starting: no %s: %v", engine, err)
			all.Runs = append(all.Runs, StartedRun{Engine: engine, Missing: reason(err)})
			continue
		}
		for _, n := range l.Starts {
			run, err := startRounds(ctx, l, s, n)
			if err != nil {
				s.Remove()
				return nil, fmt.Errorf("%s, %d processes: %w", engine, n, err)
			}
			all.Runs = append(all.Runs, run)
		}
		s.Remove()
	}
	return all, nil
}

// connections returns the options of a server that accepts those of all processes.
func connections(engine string) []string {
	if engine == "postgres" {
		return []string{"-c", "max_connections=700"}
	}
	return []string{"--max-connections=700"}
}

// startRounds starts n processes, with the plugin and without it, in turn.
func startRounds(ctx context.Context, l *Lab, s *Server, n int) (StartedRun, error) {
	run := StartedRun{Engine: s.Name, Version: s.Version, Processes: n}
	rounds := l.StartRounds
	if n < 10 && rounds > 1 { // so few processes are soon done
		rounds *= 3
	}
	var each, last [2][]float64
	for round := range rounds {
		for kind := range each {
			kind := (kind + round) % len(each)
			l.Tick("starting: %s, %d processes, round %d of %d", s.Name, n, round+1, rounds)
			took, err := startAtOnce(ctx, s, n, startTask{Tables: l.StartTables, Plugin: kind == 1})
			if err != nil {
				return run, err
			}
			each[kind] = append(each[kind], took...)
			last[kind] = append(last[kind], quantile(took, 1))
		}
	}
	run.Bare = StartedTimes{figureOf(each[0]), quantile(last[0], 0.5)}
	run.Plugin = StartedTimes{figureOf(each[1]), quantile(last[1], 0.5)}
	return run, nil
}

// startAtOnce starts n processes, lets them begin at the same moment, and returns how many ms each took.
func startAtOnce(ctx context.Context, s *Server, n int, task startTask) (took []float64, err error) {
	d, drop, err := s.Database()
	if err != nil {
		return nil, err
	}
	defer drop()
	task.Database = d
	children := make([]*child, 0, n)
	defer func() {
		for _, c := range children {
			err = errors.Join(err, c.stop())
		}
	}()
	for range n {
		c, err := launch(ctx, "start", task)
		if err != nil {
			return nil, err
		}
		children = append(children, c)
	}
	for _, c := range children {
		if _, err := c.read(); err != nil { // it is up
			return nil, err
		}
	}
	begin := time.Now().Add(20*time.Millisecond + time.Duration(n)*200*time.Microsecond) // when all have the line
	for _, c := range children {
		if err := c.send(begin.Format(time.RFC3339Nano)); err != nil {
			return nil, err
		}
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, c := range children {
		group.Go(func() {
			line, failed := c.read()
			var ms float64
			if failed == nil {
				failed = json.Unmarshal([]byte(line), &ms)
			}
			mu.Lock()
			defer mu.Unlock()
			took, err = append(took, ms), errors.Join(err, failed)
		})
	}
	group.Wait()
	return took, err
}

// A startTask is what a process that starts does.
type startTask struct {
	Database *testkit.Database
	Tables   int
	Plugin   bool
}

// startAndReport is the role of a process that starts: it waits for the moment to begin, connects, and reports after
// how many ms it had its first id, or, without the plugin, the answer to a query. It goes on until its input ends.
func startAndReport(task startTask, in *bufio.Reader) (err error) {
	models := tables(task.Tables)
	fmt.Println("up")
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	begin, err := time.Parse(time.RFC3339Nano+"\n", line)
	if err != nil {
		return err
	}
	time.Sleep(time.Until(begin))
	db, err := connect(task.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, testkit.Close(db)) }()
	ctx := context.Background()
	if task.Plugin {
		p, err := use(db, uidplugin.WithModels(models...), uidplugin.WithTimeout(time.Minute))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closePlugin(p)) }()
		if _, err := p.NextID(ctx, models[0]); err != nil {
			return err
		}
	} else {
		var one int
		if err := db.Raw("SELECT 1").Row().Scan(&one); err != nil {
			return err
		}
	}
	fmt.Println(float64(time.Since(begin).Microseconds()) / 1000)
	_, _ = io.Copy(io.Discard, in)
	return nil
}
