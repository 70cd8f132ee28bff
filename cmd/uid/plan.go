package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/generator/capacity"
	"github.com/uidplugin/uidplugin/internal/admin"
)

func (a *app) planCommand() *cobra.Command {
	var layout string
	var demand capacity.Demand
	c := &cobra.Command{
		Use:   "plan",
		Short: "Calculate how long a layout lasts and how much it carries",
		Long: `plan calculates how long a layout lasts, and how many processes, tables and ids a second it carries.

The layout is --layout, or else the layout of the database, or else the default layout. The line "leased"
is for the default policy, the line "disposable" for WithDisposable. For deployments pass --reserved, because old and
new processes run side by side, and a slot is free 21 s after its process was closed. With regions, each has an equal
share of the worker ids, so multiply the processes of the busiest region by the number of regions. The exit code is
1 if the layout has too few worker ids for the leased policy.`,
		Example: `  uid plan --processes 200 --tables 80 --restarts 10 --reserved 100
  uid plan --processes 28 --tables 50 --restarts 12
  uid plan --layout jssafetables --processes 20 --tables 30`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := a.system(c.Context(), layout)
			if err != nil {
				return err
			}
			f, err := capacity.Plan(s.Layout, demand)
			if err != nil {
				return err
			}
			if a.json {
				err = writeJSON(a.out, forecastOf(f))
			} else {
				_, err = fmt.Fprint(a.out, f)
			}
			if err == nil && !f.Leased.Fits {
				return errWrong
			}
			return err
		},
	}
	flags := c.Flags()
	layoutFlag(c, &layout)
	flags.IntVar(&demand.Processes, "processes", 1, "processes that run at once")
	flags.IntVar(&demand.Tables, "tables", 1, "tables for which each process makes ids")
	flags.Float64Var(&demand.RestartsPerDay, "restarts", 0, "starts of each process per day")
	flags.Float64Var(&demand.CrashesPerDay, "crashes", 0, "how many of these starts follow a crash")
	flags.IntVar(&demand.Lanes, "lanes", 1, "worker ids of each table and process, for tables that need more ids a "+
		"second")
	flags.IntVar(&demand.Imports, "imports", 0, "how many of --tables get imports: in the default layout more than 800 rows "+
		"at a time, or more than 16,000 a second")
	flags.IntVar(&demand.Reserved, "reserved", 0, "slots in addition to one per process: two for each process that a "+
		"rolling deployment starts at a time; as many as --processes if all start at once")
	flags.Var(durationVar(&demand.Grace, capacity.DefaultGrace), "grace", "time for which the slot of a crashed process "+
		"is kept")
	return c
}

// A forecast is a [capacity.Forecast] in JSON.
type forecast struct {
	Layout             string        `json:"layout"`
	From               admin.Instant `json:"from"`
	Until              admin.Instant `json:"until"`
	Years              float64       `json:"years"`
	WorkerIDs          int64         `json:"worker_ids"`
	PerWorkerPerSecond float64       `json:"ids_per_second_of_a_worker_id"`

	Leased     leased     `json:"leased"`
	Disposable disposable `json:"disposable"`
}

type leased struct {
	Held      int64   `json:"worker_ids_held"`
	Fits      bool    `json:"fits"`
	Processes int64   `json:"most_processes"`
	PerSecond float64 `json:"ids_per_second"`
}

type disposable struct {
	PerDay    float64 `json:"worker_ids_per_day"`
	Years     float64 `json:"years"`
	Processes int64   `json:"most_processes"`
	PerSecond float64 `json:"ids_per_second"`
}

func forecastOf(f capacity.Forecast) forecast {
	l, d := f.Leased, f.Disposable
	return forecast{
		Layout:             f.Layout.String(),
		From:               admin.Instant{Time: f.Layout.Epoch},
		Until:              admin.Instant{Time: f.Layout.Expires()},
		Years:              f.Years,
		WorkerIDs:          f.WorkerIDs,
		PerWorkerPerSecond: f.PerWorker,
		Leased:             leased{l.Held, l.Fits, l.Processes, l.PerSecond},
		Disposable:         disposable{d.PerDay, d.Years, d.Processes, d.PerSecond},
	}
}
