//go:build linux

package leases_test

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

var (
	costProcesses = flag.String("cost.processes", "3", "how many processes TestCost has: 1,10,50,400 in the long form")
	costTables    = flag.String("cost.tables", "50", "how many tables each of them writes: 1,50,200 in the long form")
	costFor       = flag.Duration("cost.for", 7*time.Second, "how long TestCost measures")
)

// What processes that use all their tables cost a MariaDB server with a row-format binary log. Each renewal changes one
// row, however many tables there are: formerly, with a row for each table, it was gigabytes of binary log a day. The
// long form:
//
//	go test -run TestCost -v -timeout 0 ./integration/leases/ -cost.processes 1,10,50,400 -cost.tables 1,50,200 -cost.for 30s
func TestCost_OneRowForEachProcess(t *testing.T) {
	testkit.SkipIfShort(t, "it starts a server")
	t.Parallel()
	harness.NeedMariaDB(t)
	m := harness.NewMariaDB(t, harness.MariaDBFolder(t, "cost"), "cost", "--log-bin=binlog", "--binlog-format=ROW", "--server-id=1",
		"--sync-binlog=0", "--max-connections=1000")
	m.Install(t)
	testkit.Must(t, m.Start())
	testkit.Must(t, m.Wait(time.Minute, "SELECT 1", "1"))
	for _, processes := range flagNumbers(t, *costProcesses) {
		for _, tables := range flagNumbers(t, *costTables) {
			cost(t, m, processes, tables)
		}
	}
}

// flagNumbers reads a list of numbers.
func flagNumbers(t *testing.T, list string) (all []int) {
	t.Helper()
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		testkit.Must(t, err)
		all = append(all, n)
	}
	return all
}

// cost measures processes that use all their tables.
func cost(t *testing.T, m *harness.MariaDB, processes, tables int) {
	t.Helper()
	schema := fmt.Sprintf("cost_%d_%d", processes, tables)
	testkit.Must(t, m.Exec("CREATE DATABASE "+schema+" CHARACTER SET utf8mb4"))
	models := harness.Thousand()[:tables]
	stop, quit := context.WithCancel(t.Context())
	var group sync.WaitGroup
	var mu sync.Mutex
	var ids, refused int64
	var longest time.Duration
	plugins := make([]*uidplugin.Plugin, processes)
	for i := range plugins {
		db, err := gorm.Open(mysql.Open(harness.MariaDBDSN(m.Address(), schema)), &gorm.Config{Logger: logger.Discard})
		testkit.Must(t, err)
		defer func() { _ = testkit.Close(db) }()
		pool, _ := db.DB()
		pool.SetMaxOpenConns(2)
		plugins[i] = uidplugin.New(harness.Quiet, uidplugin.WithModels(models...),
			uidplugin.WithHost(workernode.Host{Port: fmt.Sprint("cost", i)}), uidplugin.WithTimeout(time.Minute))
		testkit.Must(t, db.Use(plugins[i]))
	}
	for _, p := range plugins {
		group.Go(func() {
			for ; stop.Err() == nil; time.Sleep(300 * time.Millisecond) {
				for _, model := range models {
					begin := time.Now()
					_, err := p.NextID(t.Context(), model)
					took := time.Since(begin)
					mu.Lock()
					if longest = max(longest, took); err != nil {
						refused++
					} else {
						ids++
					}
					mu.Unlock()
				}
			}
		})
	}
	time.Sleep(time.Second)
	before, begin := costs(t, m), time.Now()
	renewals := func() (n int64) {
		for _, p := range plugins {
			n += p.Stats().Slot.Renewals
		}
		return n
	}
	renewed := renewals()
	time.Sleep(*costFor)
	testkit.Eventually(t, "renewals", time.Minute, func() bool { return renewals() > renewed })
	after, took := costs(t, m), time.Since(begin)
	renewed = renewals() - renewed
	quit()
	group.Wait()
	for _, p := range plugins {
		harness.Close(t, p)
	}
	a := func(name string) float64 { return float64(after[name]-before[name]) / took.Seconds() }
	t.Logf("%3d processes x %3d tables: a second %.1f statements, %.1f changed rows, %.0f bytes of redo, %.0f of binary log (%.2f GB a day); %d ids, %d refused, the longest wait %v",
		processes, tables, a("Questions"), a("Handler_update"), a("Innodb_lsn_current"), a("Binlog_bytes_written"),
		a("Binlog_bytes_written")*86400/1e9, ids, refused, longest.Round(time.Millisecond))
	if refused > 0 {
		t.Errorf("%d ids were refused", refused)
	}
	// A renewal is due after 7/24 to 8/24 of the lead. A busy machine repeats some whose answer came too late.
	most := 2 * float64(processes) * (took.Seconds()/(workernode.DefaultLead.Seconds()*7/24) + 1)
	changed := float64(after["Handler_update"] - before["Handler_update"])
	if changed > most || changed > 2*float64(renewed)+2*float64(processes) {
		t.Errorf("%d processes x %d tables: %.0f changed rows in %v for %d renewals, want one for each and %.0f at most",
			processes, tables, changed, took, renewed, most)
	}
}

// costs reads the counters of a server.
func costs(t *testing.T, m *harness.MariaDB) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for _, name := range []string{"Questions", "Handler_update", "Innodb_lsn_current", "Binlog_bytes_written"} {
		text, err := m.Ask("SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = '" + name + "'")
		testkit.Must(t, err)
		all[name], err = strconv.ParseInt(text, 10, 64)
		testkit.Must(t, err)
	}
	return all
}
