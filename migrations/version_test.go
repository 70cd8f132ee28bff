package migrations_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/uidplugin/uidplugin/internal/testkit"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
	"gorm.io/gorm"
)

// unversioned creates the tables as before version 1, with the row of an id space.
func unversioned(t *testing.T, db *gorm.DB) {
	t.Helper()
	byHand(t, db)
	begin(t, db, "layout")
	must(t, db.Exec(`ALTER TABLE "WORKER_REGISTRY" DROP COLUMN "SCHEMA_VERSION"`).Error)
}

// versionOf reads the version, or -1 if there is no column.
func versionOf(db *gorm.DB) (version int) {
	if db.Raw(`SELECT "SCHEMA_VERSION" FROM "WORKER_REGISTRY"`).Scan(&version).Error != nil {
		return -1
	}
	return version
}

// Many processes of a new release start at once, next to older ones that hold the tables: the tables are upgraded
// once, and each process starts. A later start only reads.
func TestUp_UpgradesOlderTables(t *testing.T) {
	t.Parallel()

	for _, processes := range []int{1, 8} {
		db, d, p := open(t)
		unversioned(t, db)
		var starts sync.WaitGroup
		for range processes {
			starts.Go(func() {
				if err := migrations.Up(t.Context(), d); err != nil {
					t.Error(err)
				}
			})
		}
		starts.Wait()
		if v := versionOf(db); v != workernode.SchemaVersion {
			t.Errorf("version %d after %d starts", v, processes)
		}
		p.list = nil
		must(t, migrations.Up(t.Context(), d))
		if i := slices.IndexFunc(p.list, func(s string) bool { return !strings.HasPrefix(s, "SELECT") }); i >= 0 {
			t.Errorf("the next start runs %s", p.list[i])
		}
		must(t, migrations.Check(t.Context(), d))
	}
}

// An older program begins the id space in new tables, and inserts no version: the next new one records it.
func TestUp_RecordsTheVersionThatAnOlderProgramOmits(t *testing.T) {
	t.Parallel()

	db, d, _ := open(t)
	must(t, migrations.Up(t.Context(), d))
	must(t, db.Exec(`INSERT INTO "WORKER_REGISTRY" ("NAME", "ID_SPACE", "LAYOUT", "LEAD_TICKS", "NEXT_ID", "NEXT_SLOT", "FLOOR_TICK")
		VALUES ('default', 'space', 'layout', 10000, 1, 1, 0)`).Error)
	if v := versionOf(db); v != 0 {
		t.Fatalf("version %d", v)
	}
	err := migrations.Check(t.Context(), d)
	testkit.IsError(t, err, workernode.ErrTable, "SCHEMA_VERSION in WORKER_REGISTRY is 0", "UPDATE ")
	must(t, migrations.Up(t.Context(), d))
	if v := versionOf(db); v != workernode.SchemaVersion {
		t.Errorf("version %d", v)
	}
}

// With WithoutMigration somebody runs the statements of the error. Afterwards the program must start. The last statement
// must not lower the version, if a later release has upgraded the tables meanwhile.
func TestCheck_PrintsTheStatementsOfTheUpgrade(t *testing.T) {
	t.Parallel()

	db, d, _ := open(t)
	unversioned(t, db)
	err := migrations.Check(t.Context(), d)
	testkit.IsError(t, err, workernode.ErrTable)
	if versionOf(db) != -1 {
		t.Fatal("Check has changed the tables")
	}
	_, statements, _ := strings.Cut(err.Error(), ":\n")
	must(t, db.Exec(statements).Error)
	must(t, migrations.Check(t.Context(), d))
	if v := versionOf(db); v != workernode.SchemaVersion {
		t.Errorf("version %d after\n%s", v, statements)
	}
	must(t, db.Exec(`UPDATE "WORKER_REGISTRY" SET "SCHEMA_VERSION" = ?`, workernode.SchemaVersion+1).Error)
	must(t, db.Exec(statements[strings.Index(statements, "UPDATE "):]).Error)
	if v := versionOf(db); v != workernode.SchemaVersion+1 {
		t.Errorf("the statements lower the version to %d", v)
	}
}

// A later release of the same major version has upgraded the tables. This program continues, and does not lower their
// version.
func TestUp_ContinuesNextToALaterRelease(t *testing.T) {
	t.Parallel()

	const later = workernode.SchemaVersion + 1
	db, d, _ := open(t)
	byHand(t, db)
	begin(t, db, "layout")
	must(t, db.Exec(`ALTER TABLE "WORKER_SLOT" ADD COLUMN "LATER" BIGINT NOT NULL DEFAULT 0`).Error)
	must(t, db.Exec(`UPDATE "WORKER_REGISTRY" SET "SCHEMA_VERSION" = ?`, later).Error)
	must(t, migrations.Up(t.Context(), d))
	must(t, migrations.Check(t.Context(), d))
	if v := versionOf(db); v != later {
		t.Errorf("version %d", v)
	}
}

// The tables of a later major version may lack what this program needs. It must name the version to use, and change
// nothing.
func TestUp_RefusesTheTablesOfALaterMajorVersion(t *testing.T) {
	t.Parallel()

	db, d, _ := open(t)
	byHand(t, db)
	begin(t, db, "layout")
	major := workernode.SchemaVersion/1000 + 1
	must(t, db.Exec(`UPDATE "WORKER_REGISTRY" SET "SCHEMA_VERSION" = ?`, major*1000+2).Error)
	must(t, db.Exec(`ALTER TABLE "WORKER_NODE" DROP COLUMN "START_TICK"`).Error)
	before := shape(t, db)
	for _, err := range []error{migrations.Up(t.Context(), d), migrations.Check(t.Context(), d)} {
		testkit.IsError(t, err, workernode.ErrTable, "too old", fmt.Sprintf("uidplugin %d.2 has upgraded", major),
			fmt.Sprintf("build it with uidplugin %d.0 or later", major))
	}
	if !slices.Equal(shape(t, db), before) {
		t.Error("the tables were changed")
	}
}
