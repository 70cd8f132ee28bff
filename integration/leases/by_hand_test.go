package leases_test

import (
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/workernode"
)

// In a rolling deployment processes with WithWorkerID run next to those without. Formerly the registry began with the
// worker ids of the others: 4,706 of 60,000 ids were there twice.
func TestWithWorkerID_RollingDeployment(t *testing.T) {
	t.Parallel()
	numbers := []uidplugin.Option{uidplugin.WithWorkerID(1), uidplugin.WithWorkerID(2), uidplugin.WithWorkerID(3), uidplugin.WithWorkerID(1024)}
	small := uidplugin.WithLayout(generator.SnowflakeLayout())
	for name, tt := range map[string]struct {
		layout        []uidplugin.Option
		first, second []uidplugin.Option // an option for each process
	}{
		"to the registry":                  {nil, numbers, []uidplugin.Option{nil, nil}},
		"from the registry":                {nil, []uidplugin.Option{nil, nil}, numbers},
		"to the registry, high numbers":    {[]uidplugin.Option{small}, []uidplugin.Option{uidplugin.WithWorkerID(900), uidplugin.WithWorkerID(64)}, []uidplugin.Option{nil, nil}},
		"to the registry, a small layout":  {[]uidplugin.Option{small}, []uidplugin.Option{uidplugin.WithWorkerID(63)}, []uidplugin.Option{nil}},
		"from the registry, small numbers": {[]uidplugin.Option{small}, []uidplugin.Option{nil}, []uidplugin.Option{uidplugin.WithWorkerID(63), uidplugin.WithWorkerID(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testkit.Each(t, func(t *testing.T, d *testkit.Database) {
				testkit.Must(t, d.Open(t, nil).AutoMigrate(&harness.T1{}))
				ledger := testkit.NewLedger(t)
				var group sync.WaitGroup
				for _, option := range append(tt.first, tt.second...) {
					db := d.Open(t, nil)
					harness.Use(t, db, append(tt.layout, option, uidplugin.WithModels(&harness.T1{}))...)
					group.Go(func() { // next to the processes that start later
						for range 20 {
							rows := make([]harness.T1, 50)
							if err := db.Create(&rows).Error; err != nil {
								t.Error(err)
								return
							}
							for _, r := range rows {
								ledger.Add("t1", int64(r.ID))
							}
						}
					})
				}
				group.Wait()
			})
		})
	}
}

// Numbers above those that a registry leaves free exclude it, and the other way round.
func TestWithWorkerID_HighNumbersAndARegistryExcludeEachOther(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		small := uidplugin.WithLayout(generator.SnowflakeLayout())
		paired := []uidplugin.Option{uidplugin.WithLayout(generator.JSSafeLayout()), uidplugin.WithDefaultGenerator("paired")}
		start := func(d *testkit.Database, options ...uidplugin.Option) error {
			return d.Open(t, nil).Use(uidplugin.New(append(options, harness.Quiet)...))
		}
		t.Run("the registry came first", func(t *testing.T) {
			d := d.New(t)
			harness.Use(t, d.Open(t, nil), small, uidplugin.WithModels(&harness.T1{}))
			testkit.IsError(t, start(d, small, uidplugin.WithWorkerID(700)), uidplugin.ErrOption,
				"WithWorkerID(700)", "because it begins at 64", "docs/layouts.md")
			testkit.Must(t, start(d, small, uidplugin.WithWorkerID(63)))
		})
		t.Run("the numbers came first", func(t *testing.T) {
			d := d.New(t)
			for _, n := range []int64{15, 3} {
				harness.Use(t, d.Open(t, nil), append(paired, uidplugin.WithWorkerID(n))...)
			}
			p := harness.Use(t, d.Open(t, nil), append(paired, uidplugin.WithOneWorkerID())...)
			_, err := harness.NextID(p)
			testkit.IsError(t, err, workernode.ErrExhausted, "below 32 are given by hand")
		})
		t.Run("the tables of another user", func(t *testing.T) {
			d := d.New(t)
			testkit.IsError(t, start(d, small, uidplugin.WithWorkerID(700), uidplugin.WithoutMigration()), uidplugin.ErrTable, "WithWorkerID(700)", "WORKER_NODE")
			testkit.Must(t, start(d, small, uidplugin.WithWorkerID(63), uidplugin.WithoutMigration()))
		})
	})
}

// UidGenerator numbers WORKER_NODE from 1 on.
func TestWithWorkerID_IsRefusedNextToUidGenerator(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		harness.Exec(t, db, `CREATE TABLE "WORKER_NODE" ("ID" BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, "HOST_NAME" VARCHAR(64) NOT NULL, "PORT" VARCHAR(64) NOT NULL,
			"TYPE" INT NOT NULL, "LAUNCH_DATE" DATE NOT NULL, "MODIFIED" TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, "CREATED" TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)`)
		// Formerly a process was refused only once a registry had begun, which then gave out its number.
		testkit.IsError(t, d.Open(t, nil).Use(uidplugin.New(harness.Quiet, uidplugin.WithWorkerID(7))), uidplugin.ErrOption, "WithWorkerID(7)", "UidGenerator", "AUTO_INCREMENT")
		harness.Use(t, d.Open(t, nil), uidplugin.WithModels(&harness.T1{}))
		testkit.IsError(t, d.Open(t, nil).Use(uidplugin.New(harness.Quiet, uidplugin.WithWorkerID(8))), uidplugin.ErrOption, "WithWorkerID(8)", "UidGenerator", "AUTO_INCREMENT")
		harness.Exec(t, db, `ALTER TABLE "WORKER_NODE" MODIFY "ID" BIGINT NOT NULL`)
		testkit.IsError(t, d.Open(t, nil).Use(uidplugin.New(harness.Quiet, uidplugin.WithWorkerID(8))), uidplugin.ErrOption, "WithWorkerID(8)", "may give out 8, because it begins at 1:")
	}, "mariadb", "mysql")
}
