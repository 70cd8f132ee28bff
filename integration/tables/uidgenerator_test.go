package tables_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/generator/foreign"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/testkit"
	"gorm.io/gorm"
)

// baidu/uid-generator has these statements in src/main/scripts/WORKER_NODE.sql and in its mapper WORKER_NODE.xml
// (commit 2fcbc13), the INSERT as MyBatis sends it.
const (
	uidGeneratorTable = `CREATE TABLE WORKER_NODE
(
ID BIGINT NOT NULL AUTO_INCREMENT COMMENT 'auto increment id',
HOST_NAME VARCHAR(64) NOT NULL COMMENT 'host name',
PORT VARCHAR(64) NOT NULL COMMENT 'port',
TYPE INT NOT NULL COMMENT 'node type: ACTUAL or CONTAINER',
LAUNCH_DATE DATE NOT NULL COMMENT 'launch date',
MODIFIED TIMESTAMP NOT NULL COMMENT 'modified time',
CREATED TIMESTAMP NOT NULL COMMENT 'created time',
PRIMARY KEY(ID)
)
 COMMENT='DB WorkerID Assigner for UID Generator',ENGINE = INNODB`

	uidGeneratorInsert = `INSERT INTO WORKER_NODE
		(HOST_NAME,
		PORT,
		TYPE,
		LAUNCH_DATE,
		MODIFIED,
		CREATED)
		VALUES (
		?,
		?,
		?,
		?,
		NOW(),
		NOW())`
)

// begin does what UidGenerator does at a start: it inserts a row, whose AUTO_INCREMENT is the worker id.
func begin(db *gorm.DB) (worker int64, err error) {
	err = db.Connection(func(tx *gorm.DB) error {
		if err := tx.Exec(uidGeneratorInsert, "java-1", "1700000000000-4711", 2, time.Now()).Error; err != nil {
			return err
		}
		return tx.Raw("SELECT LAST_INSERT_ID()").Scan(&worker).Error
	})
	return worker, err
}

// The plugin and UidGenerator's Java service use one WORKER_NODE at the same time. The plugin adds columns and
// changes nothing else, Java's INSERT still works, and both never get the same worker id.
func TestUidGenerator_NextToUidGenerator(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		ctx := context.Background()
		java := d.Open(t, nil)
		createUidGenerator(t, java)
		var before []int64
		for range 3 {
			worker, err := begin(java)
			testkit.Must(t, err)
			before = append(before, worker)
		}

		seen := testkit.NewLedger(t) // of worker ids
		seen.Add("java", before...)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 25 {
					worker, err := begin(java)
					if err != nil {
						t.Error(err)
						return
					}
					seen.Add("java", worker)
				}
			})
			wg.Go(func() {
				for range 10 { // each a start of a process
					db, err := d.Connect(nil)
					if err != nil {
						t.Error(err)
						return
					}
					p := uidplugin.New(harness.Quiet, uidplugin.WithModels(&harness.T1{}, &harness.T2{}))
					if err := db.Use(p); err != nil {
						t.Error(err)
						return
					}
					for _, s := range p.Stats().Tables {
						seen.Add(s.Table, s.WorkerIDs[0])
					}
					_ = p.Close(ctx)
					pool, _ := db.DB()
					_ = pool.Close()
				}
			})
		}
		wg.Wait()
		if want := 3 + 4*25 + 4*10*2; seen.Len() != want {
			t.Errorf("%d worker ids, want %d", seen.Len(), want)
		}

		// Ids of Java's workers are told apart, and its rows are as they were.
		p := harness.Use(t, d.Open(t, nil))
		parts, _ := p.Decode(0)
		parts.Time, parts.WorkerID = time.Now(), before[0]
		id, err := p.Layout().Compose(parts)
		testkit.Must(t, err)
		if _, err := p.Locate(ctx, uidplugin.ID(id)); !errors.Is(err, uidplugin.ErrOtherLayout) {
			t.Errorf("Locate of an id of UidGenerator: %v", err)
		}
		var java1 int64
		if err := java.Raw("SELECT COUNT(*) FROM WORKER_NODE WHERE HOST_NAME = 'java-1' AND PORT = '1700000000000-4711' AND TYPE = 2 AND TABLE_NAME = ''").Scan(&java1).Error; err != nil || java1 != 103 {
			t.Errorf("%d rows of Java's are as they were, %v; want 103", java1, err)
		}
		// A fork that reuses rows by host and port finds those of Java by this condition, and none of the plugin's.
		var free int64
		if err := java.Raw("SELECT COUNT(*) FROM WORKER_NODE WHERE SLOT IS NULL").Scan(&free).Error; err != nil || free != java1 {
			t.Errorf("%d rows have no slot, %v; %d are Java's", free, err, java1)
		}
		var ddl [2]string
		testkit.Must(t, java.Raw("SHOW CREATE TABLE WORKER_NODE").Row().Scan(&ddl[0], &ddl[1]))
		for _, keep := range []string{"`ID` bigint", "AUTO_INCREMENT", "'DB WorkerID Assigner for UID Generator'", "'node type: ACTUAL or CONTAINER'"} {
			if !strings.Contains(ddl[1], keep) {
				t.Errorf("the table has lost %s:\n%s", keep, ddl[1])
			}
		}
	}, "mariadb", "mysql")
}

// If WORKER_NODE has rows of the Java service, worker ids continue above them, even if the registry is created later.
func TestUidGenerator_RegistryBeginsAboveExistingRows(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		java := d.Open(t, nil)
		testkit.Must(t, java.Exec(strings.ReplaceAll(uidGeneratorTable, "TIMESTAMP NOT NULL", "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP")).Error)
		testkit.Must(t, java.Exec(strings.Replace(fmt.Sprintf(strings.ReplaceAll(uidGeneratorInsert, "?", "%s"), "7000, 'j'", "'p'", "1", "'2020-01-01'"), "(HOST_NAME", "(ID, HOST_NAME", 1)).Error)
		p := harness.Use(t, d.Open(t, nil), uidplugin.WithModels(&harness.T1{}))
		if got := p.Stats().Tables[0].WorkerIDs[0]; got != 7001 {
			t.Errorf("worker id %d, want 7001", got)
		}
	}, "mariadb", "mysql")
}

// The statements of docs/from-uidgenerator.md begin anew after a start with the wrong layout, while the Java service
// runs. Worker ids continue above all that were given out, so ids of the same bits differ.
func TestUidGenerator_TheStatementsCorrectTheLayout(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/from-uidgenerator.md")
	testkit.Must(t, err)
	_, section, _ := strings.Cut(string(text), "## A wrong layout at the first start")
	_, block, _ := strings.Cut(section, "```sql\n")
	block, _, _ = strings.Cut(block, "```")
	statements := strings.Split(strings.TrimSpace(block), "\n")
	if len(statements) != 2 {
		t.Fatalf("the document has the statements %q", statements)
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		java := d.Open(t, nil)
		createUidGenerator(t, java)
		seen := testkit.NewLedger(t) // of worker ids
		starts := func() {
			t.Helper()
			worker, err := begin(java)
			testkit.Must(t, err)
			seen.Add("java", worker)
		}
		starts()
		db := d.Open(t, nil)
		p := harness.Use(t, db, uidplugin.WithModels(&harness.T1{})) // without WithLayout
		seen.Add("t1", p.Stats().Tables[0].WorkerIDs...)
		testkit.Must(t, db.AutoMigrate(&harness.T1{}))
		var wrong, right harness.T1
		testkit.Must(t, db.Create(&wrong).Error)
		harness.Close(t, p)
		starts()

		layout := foreign.UidGeneratorLayout()
		layout.Epoch = time.Now().Add(-24 * time.Hour)
		options := []uidplugin.Option{harness.Quiet, uidplugin.WithLayout(layout), uidplugin.WithModels(&harness.T1{})}
		testkit.IsError(t, d.Open(t, nil).Use(uidplugin.New(options...)), uidplugin.ErrLayoutMismatch)
		for _, statement := range statements {
			testkit.Must(t, java.Exec(statement).Error)
		}
		db = d.Open(t, nil)
		p = harness.Use(t, db, options...)
		seen.Add("t1", p.Stats().Tables[0].WorkerIDs...)
		starts()
		testkit.Must(t, db.Create(&right).Error)
		harness.Resolves(t, p, "t1", "", int64(right.ID))
		if parts, err := layout.Decompose(int64(right.ID)); err != nil || seen.Tables()[parts.WorkerID] != "t1" {
			t.Errorf("the new id has the parts %v, %v", parts, err)
		}
		if _, err := p.Find(context.Background(), wrong.ID); !errors.Is(err, uidplugin.ErrNoSuchID) {
			t.Errorf("Find of an id of the wrong layout: %v", err)
		}
	}, "mariadb", "mysql")
}

// Without WithLayout, a Go service next to UidGenerator makes ids of other bits, which can equal Java's. Nothing shows it
// but the layout, so the first start logs one that UidGenerator cannot have. Next to it, 63 bits and seconds are right.
func TestUidGenerator_TheLogNamesALayoutThatUidGeneratorCannotHave(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		narrow, long := foreign.UidGeneratorSampleLayout(), foreign.UidGeneratorSampleLayout()
		narrow.WorkerBits--
		long.Tick = 2 * time.Second
		for _, tt := range []struct {
			layout generator.Layout
			java   bool
			want   int
		}{
			{generator.DefaultLayout(), true, 1}, {narrow, true, 1}, {long, true, 1},
			{foreign.UidGeneratorSampleLayout(), true, 0}, {generator.DefaultLayout(), false, 0},
		} {
			log := &testkit.Log{}
			db := d.Open(t, nil)
			testkit.Must(t, db.Exec("DROP TABLE IF EXISTS WORKER_NODE, WORKER_SESSION, WORKER_SLOT, WORKER_REGISTRY").Error)
			if tt.java {
				createUidGenerator(t, db)
			}
			for range 2 { // only the first start begins the id space
				p := uidplugin.New(uidplugin.WithLogger(log.Logger()), uidplugin.WithLayout(tt.layout))
				testkit.Must(t, d.Open(t, nil).Use(p))
				harness.Close(t, p)
			}
			lines := log.Lines("UidGenerator cannot have")
			if len(lines) != tt.want || tt.want > 0 && !strings.Contains(lines[0], "layout="+tt.layout.String()) {
				t.Errorf("with %v, next to Java %v: %q", tt.layout, tt.java, lines)
			}
		}
	}, "mariadb", "mysql")
}

// A Go service that starts first creates a WORKER_NODE in which Java services cannot insert. After the statement of
// docs/from-uidgenerator.md they can, and get other worker ids.
func TestUidGenerator_AfterThePlugin(t *testing.T) {
	t.Parallel()
	const statement = "ALTER TABLE WORKER_NODE MODIFY ID BIGINT NOT NULL AUTO_INCREMENT"
	text, err := os.ReadFile("../../docs/from-uidgenerator.md")
	testkit.Must(t, err)
	if !strings.Contains(string(text), "`"+statement+"`") {
		t.Errorf("the document does not have %s", statement)
	}
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		db := d.Open(t, nil)
		p := harness.Use(t, db, uidplugin.WithModels(&harness.T1{}))
		java := d.Open(t, nil)
		if worker, err := begin(java); err == nil {
			t.Errorf("Java got the worker id %d", worker)
		}
		testkit.Must(t, java.Exec(statement).Error)
		seen := testkit.NewLedger(t) // of worker ids
		seen.Add("t1", p.Stats().Tables[0].WorkerIDs...)
		for range 3 {
			worker, err := begin(java)
			testkit.Must(t, err)
			seen.Add("java", worker)
			next := harness.Use(t, d.Open(t, nil), uidplugin.WithModels(&harness.T1{}))
			seen.Add("t1", next.Stats().Tables[0].WorkerIDs...)
		}
	}, "mariadb", "mysql")
}

func createUidGenerator(t *testing.T, db *gorm.DB) {
	t.Helper()
	testkit.Must(t, db.Connection(func(tx *gorm.DB) error {
		// MODIFIED and CREATED need a default in strict mode, by upstream's own fault.
		if err := tx.Exec("SET SESSION sql_mode = ''").Error; err != nil {
			return err
		}
		return tx.Exec(uidGeneratorTable).Error
	}))
}
