package settings_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/integration/internal/harness"
	"github.com/uidplugin/uidplugin/internal/admin"
	"github.com/uidplugin/uidplugin/internal/follow"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/internal/testkit"
)

// modesOfMySQL are the values of sql_mode in MySQL 9. MariaDB lists its own.
var modesOfMySQL = strings.Split("ALLOW_INVALID_DATES,ANSI,ANSI_QUOTES,ERROR_FOR_DIVISION_BY_ZERO,HIGH_NOT_PRECEDENCE,IGNORE_SPACE,"+
	"NO_AUTO_VALUE_ON_ZERO,NO_BACKSLASH_ESCAPES,NO_DIR_IN_CREATE,NO_ENGINE_SUBSTITUTION,NO_UNSIGNED_SUBTRACTION,NO_ZERO_DATE,"+
	"NO_ZERO_IN_DATE,ONLY_FULL_GROUP_BY,PAD_CHAR_TO_FULL_LENGTH,PIPES_AS_CONCAT,REAL_AS_FLOAT,STRICT_ALL_TABLES,"+
	"STRICT_TRANS_TABLES,TIME_TRUNCATE_FRACTIONAL,TRADITIONAL", ",")

// refused are the modes in which db.Use fails, and what the error has.
var refused = map[string]string{
	"EMPTY_STRING_IS_NULL": "sql_mode has EMPTY_STRING_IS_NULL",
}

// The plugin does its work in each sql_mode, because an application may need any of them, or names the one in which it
// cannot. A server has up to six of them at a time.
func TestMainJob_InEachSQLMode(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		modes := append([]string{""}, modesOfMySQL...)
		if d.Name == "mariadb" {
			var list string
			testkit.Must(t, d.Open(t, nil).Raw("SELECT ENUM_VALUE_LIST FROM information_schema.SYSTEM_VARIABLES WHERE VARIABLE_NAME = 'SQL_MODE'").Scan(&list).Error)
			modes = append([]string{""}, strings.Split(list, ",")...)
			if len(modes) < 30 {
				t.Fatalf("MariaDB lists %q", modes)
			}
		}
		works := slices.DeleteFunc(slices.Clone(modes), func(mode string) bool { return refused[mode] != "" })
		groups := slices.DeleteFunc(modes, func(mode string) bool { return refused[mode] == "" })
		for some := range slices.Chunk(works[1:], 6) {
			groups = append(groups, strings.Join(some, ","))
		}
		for _, mode := range append(groups, works[0]) {
			t.Run("mode="+mode, func(t *testing.T) {
				t.Parallel()
				d, param := d.New(t), "sql_mode=%27"+mode+"%27"
				if refused[mode] == "" {
					testkit.Must(t, mainJob(t.Context(), d, param))
					return
				}
				_, err := begin(d, param)
				testkit.IsError(t, err, nil, refused[mode])
			})
		}
	}, "mariadb", "mysql")
}

// A region takes worker ids by their remainder.
func TestRegion_InSQLModeOracle(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		ctx, params := t.Context(), []string{"sql_mode=ORACLE"}
		for _, of := range []int64{3, 6} {
			p, err := beginWith(d, params, []any{&Post{}}, uidplugin.WithRegion(1, 3))
			testkit.Must(t, err)
			id, err := p.plugin.NextID(ctx, &Post{})
			testkit.Must(t, err)
			where, err := p.plugin.Locate(ctx, id)
			testkit.Must(t, err)
			if where.WorkerID%3 != 1 {
				t.Errorf("the worker id is %d", where.WorkerID)
			}
			operator, err := admin.Connect(p.db, time.Minute, time.Now)
			testkit.Must(t, err)
			testkit.Must(t, operator.ReadRegistry(ctx))
			_, _, err = operator.Split(ctx, 2*of, 0)
			testkit.Must(t, err)
			testkit.Must(t, p.end())
		}
	}, "mariadb")
}

// MariaDB shows the time at which a trigger was created as sql_mode says, rounded or cut off. By this time a follower
// recognizes the trigger, whatever the mode of the program that installed it.
func TestFollow_ATriggerIsTheSameInEachSQLMode(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, d *testkit.Database) {
		handle := func(mode string) *sqldb.DB {
			db, err := sqldb.Open(d.Open(t, nil, "sql_mode=%27"+mode+"%27"), time.Minute)
			testkit.Must(t, err)
			return db
		}
		one, other := handle(""), handle("TIME_ROUND_FRACTIONAL")
		for i := range 20 { // every second time is rounded up
			table := follow.Table{Name: fmt.Sprintf("posts_%d", i), Key: "id", Slack: time.Second}
			testkit.Must(t, one.ExecRaw(t.Context(), "CREATE TABLE "+table.Name+" (id BIGINT PRIMARY KEY)"))
			testkit.Must(t, follow.Enable(t.Context(), one, table))
			for _, db := range []*sqldb.DB{one, other} {
				var err error
				for range 5 { // a process that stands still for seconds, as on a busy machine, loses its connection
					_, err = follow.NewMark(db, table, generator.DefaultLayout(), time.Now).Advance(t.Context())
					if err == nil || !harness.Unreachable.MatchString(err.Error()) {
						break
					}
				}
				testkit.Must(t, err)
			}
		}
	}, "mariadb")
}
