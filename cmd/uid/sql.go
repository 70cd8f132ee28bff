package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/sqldb"
	"github.com/uidplugin/uidplugin/migrations"
	"github.com/uidplugin/uidplugin/workernode"
)

// A script has the choices for the output of "uid sql".
type script struct {
	dialect dialect
	schema  string
	tables  string // PostgreSQL: the schema of the tables; if empty, the search path decides
	layout  generator.Layout
	only    string // tables, functions or uidgenerator; empty: tables and functions
}

func (a *app) sqlCommand() *cobra.Command {
	var s script
	var name, layout string
	c := &cobra.Command{
		Use:   "sql",
		Short: "Print the tables, the view and the functions as SQL",
		Long: `sql prints the statements that create the four tables, the view uid_origin, and the functions uid_time,
uid_worker and uid_table, so that somebody with the privileges can run them. It changes nothing.

The dialect is --dialect, or else the database's. The layout is --layout, or else the database's, or else the
default. It prints a warning if the database has no layout yet, or with --dialect if the database cannot be reached.
Clients that split statements at semicolons can run the functions for MySQL, because the functions contain none.

With --follow it prints the statements of "uid follow enable" for a table instead. The dialect may then be mariadb, too.
Migrations of goose, golang-migrate and Atlas can contain them as they are. For the client mysql pass --delimiter, because
it would split the trigger at its semicolons. With --json each statement is an object of its own. Package migrations has
a function for the same statements.`,
		Example: `  uid sql --dialect postgres
  uid sql --dialect mysql --only functions --layout jssafetables
  uid sql --dialect mariadb --follow shop_orders --key id
  uid sql --dialect mysql --follow shop_orders --delimiter | mysql shop`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("schema") {
				a.schema = s.schema
			}
			if err := a.readScript(c.Context(), &s, name, layout); err != nil {
				return err
			}
			text, err := s.text()
			if err != nil {
				return err
			}
			if a.json {
				return writeJSON(a.out, struct {
					SQL string `json:"sql"`
				}{text})
			}
			_, err = fmt.Fprint(a.out, text)
			return err
		},
	}
	flags := c.Flags()
	dialectFlag(c, &name, "mysql (also for MariaDB), postgres or sqlite; with --follow also mariadb")
	layoutFlag(c, &layout)
	flags.StringVar(&s.schema, "schema", "public", "PostgreSQL: the schema of the tables")
	flags.StringVar(&s.only, "only", "", "tables, functions, or uidgenerator (extends a WORKER_NODE of "+
		"UidGenerator)")
	a.followFlags(c, &s, &name) // wing: follow
	_ = c.RegisterFlagCompletionFunc(
		"only",
		cobra.FixedCompletions([]string{"tables", "functions", "uidgenerator"}, cobra.ShellCompDirectiveNoFileComp),
	)
	return c
}

func dialectFlag(c *cobra.Command, name *string, text string) {
	c.Flags().StringVar(name, "dialect", "", text)
	_ = c.RegisterFlagCompletionFunc(
		"dialect",
		cobra.FixedCompletions([]string{"mysql", "postgres", "sqlite"}, cobra.ShellCompDirectiveNoFileComp),
	)
}

// dialect returns the dialect of --dialect, or else the dialect of the database.
func (a *app) dialect(name string) (dialect, error) {
	switch strings.ToLower(name) {
	case "mysql", "mariadb":
		return mysqlDialect, nil
	case "postgres", "postgresql":
		return postgresDialect, nil
	case "sqlite", "sqlite3":
		return sqliteDialect, nil
	case "":
		if a.source() == "" {
			return "", errors.New("no dialect given; pass --dialect mysql, postgres or sqlite")
		}
		source, err := parseSource(a.source())
		return source.dialect, err
	}
	return "", fmt.Errorf("--dialect %q is unknown; use mysql, postgres or sqlite", name)
}

func (a *app) readScript(ctx context.Context, s *script, name, layout string) (err error) {
	if s.dialect, err = a.dialect(name); err != nil {
		return err
	}
	s.tables = a.schema
	if s.only == "tables" || s.only == "uidgenerator" {
		return nil // these statements are the same for all layouts
	}
	system, err := a.system(ctx, layout)
	s.layout = system.Layout
	if err != nil && layout == "" && (name != "" || errors.Is(err, workernode.ErrTable)) {
		a.complain(fmt.Errorf("warning: the statements are for the default layout; pass --layout for another: %w", err))
		s.layout, err = generator.DefaultLayout(), nil
	}
	return err
}

// createTables returns the statements that create the tables, for the schema of --schema.
func (s script) createTables(file string) (string, error) {
	text, err := migrations.Files.ReadFile(file)
	if s.dialect != postgresDialect || s.tables == "" {
		return string(text), err
	}
	in := sqldb.QuotePart(string(s.dialect), s.tables) + "."
	return strings.ReplaceAll(string(text), `"WORKER_`, in+`"WORKER_`), err
}

func (s script) text() (string, error) {
	file := string(s.dialect) + ".sql"
	switch s.only {
	case "":
		tables, err := s.createTables(file)
		if err != nil {
			return "", err
		}
		functions, err := migrations.FunctionStatementsFor(string(s.dialect), s.schema, s.layout)
		return tables + "\n-- For the layout " + s.layout.String() + "\n" + functions, err
	case "tables":
		return s.createTables(file)
	case "functions":
		functions, err := migrations.FunctionStatementsFor(string(s.dialect), s.schema, s.layout)
		return "-- For the layout " + s.layout.String() + "\n" + functions, err
	case "uidgenerator":
		if s.dialect != mysqlDialect {
			return "", fmt.Errorf("--only uidgenerator is for MySQL, because UidGenerator's table is there; the dialect is %s",
				s.dialect)
		}
		text, err := migrations.Files.ReadFile("mysql_uidgenerator.sql")
		return string(text), err
	}
	return "", fmt.Errorf("--only %q is unknown; use tables, functions or uidgenerator", s.only)
}
