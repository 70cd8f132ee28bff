package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes.
const (
	exitOK     = 0 // done, nothing is wrong
	exitWrong  = 1 // the answer is bad: an id that nobody made, a finding of the doctor
	exitFailed = 2 // no answer: an invalid flag, an unreachable or unreadable database
)

// errWrong reports a bad answer that the command has already printed.
var errWrong = errors.New("something is wrong")

// errUndone reports a check that could not run. The command has already printed the reason.
var errUndone = errors.New("a check could not run")

// An app is one run of the program.
type app struct {
	in  io.Reader
	out io.Writer
	err io.Writer
	env func(name string) string
	now func() time.Time // clock of this machine

	dsn     string
	schema  string // of the tables on PostgreSQL
	json    bool
	timeout time.Duration // per statement

	sources []string // data source names in use, whose passwords the output hides
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.command()
	root.SetArgs(afterFlags(args))
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	switch err := root.ExecuteContext(ctx); {
	case err == nil:
		return exitOK
	case errors.Is(err, errWrong):
		return exitWrong
	case errors.Is(err, errUndone), errors.Is(err, syscall.EPIPE): // the reader of the pipe has left
		return exitFailed
	default:
		a.complain(err)
		return exitFailed
	}
}

// complain writes an error as one line.
func (a *app) complain(err error) {
	text := a.redact(err.Error())
	for _, prefix := range []string{"uidplugin: ", "workernode: ", "generator: ", "migrations: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	fmt.Fprintln(a.err, a.paint(a.err, red, "uid:"), oneLine(text))
}

// redact hides the passwords of data source names in a text.
func (a *app) redact(text string) string {
	for _, dsn := range append(a.sources, a.source()) {
		text = redact(text, dsn)
	}
	return text
}

// afterFlags moves negative ids behind "--", because cobra would take them for flags.
func afterFlags(args []string) []string {
	if !slices.Contains(args, "decode") && !slices.Contains(args, "where") || slices.Contains(args, "--") {
		return args
	}
	var kept, negative []string
	for _, arg := range args {
		if negativeNumber.MatchString(arg) {
			negative = append(negative, arg)
		} else {
			kept = append(kept, arg)
		}
	}
	if len(negative) == 0 {
		return args
	}
	return append(append(kept, "--"), negative...)
}

var negativeNumber = regexp.MustCompile(`^-\d+$`)

func (a *app) source() string {
	if a.dsn != "" {
		return a.dsn
	}
	return a.env("UID_DSN")
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "uid",
		Short: "Decode and locate ids of uidplugin, and check their database",
		Long: `uid decodes and locates ids of uidplugin, lists their processes, and checks their database.

Pass --dsn with the database that has the table WORKER_REGISTRY, or set UID_DSN in the environment:
  mysql://user:password@host:3306/shop       MySQL and MariaDB; parameters follow "?"
  postgres://user:password@host:5432/shop    PostgreSQL; or "host=... dbname=..."
  sqlite:shop.db                             SQLite; or only the path of the file
  user:password@tcp(host:3306)/shop          the form of Go's MySQL driver

With --json it prints JSON objects, one per line, with ids as strings.

Exit codes:
  0  success: no problem was found
  1  the output names a problem with an id, a plan or the database
  2  failure: an invalid flag, or a database that cannot be reached or read`,
		Example: `  uid decode 1176816959799427126
  uid where --row 1176816959799427126 --dsn sqlite:shop.db
  uid status
  uid doctor`,
		Version:       version(),
		Args:          onlyCommands,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.dsn, "dsn", "", "data source name of the database (default: UID_DSN in the environment)")
	flags.StringVar(&a.schema, "schema", "", "PostgreSQL: schema of the plugin's tables (default: where the search path "+
		"finds WORKER_REGISTRY)")
	flags.BoolVar(&a.json, "json", false, "write JSON, one object per line")
	flags.Var(durationVar(&a.timeout, 30*time.Second), "timeout", "limit of each statement; connecting to a host is limited to 10s")
	// Let the shell complete file names for --dsn, which may be the path of a SQLite file, but not for arguments.
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	_ = root.RegisterFlagCompletionFunc("dsn", cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault))
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		var no *pflag.NotExistError
		if !errors.As(err, &no) || len(no.GetSpecifiedName()) < 2 {
			return err
		}
		names := &cobra.Command{SuggestionsMinimumDistance: 2} // cobra suggests commands, but no flags
		c.Flags().VisitAll(func(f *pflag.Flag) {
			names.AddCommand(&cobra.Command{Use: "--" + f.Name, Run: func(*cobra.Command, []string) {}})
		})
		name := "--" + no.GetSpecifiedName()
		return unknown("flag", name, c.CommandPath(), names.SuggestionsFor(name))
	})
	root.AddCommand(
		a.statusCommand(), a.versionCommand(), a.decodeCommand(), a.whereCommand(), a.tablesCommand(), a.slotsCommand(),
		a.sessionsCommand(), a.nextCommand(), a.planCommand(), a.sqlCommand(), a.doctorCommand(),
		a.regionCommand(),
		a.followCommand(),     // wing: follow
		a.partitionsCommand(), // wing: partitions
		a.serveCommand(),      // wing: inspector
		a.removeCommand(),
	)
	return root
}

// onlyCommands rejects arguments that are not the name of a subcommand.
func onlyCommands(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	return unknown("command", args[0], c.CommandPath(), c.SuggestionsFor(args[0]))
}

// unknown returns an error about an unknown name, with similar ones.
func unknown(kind, name, parent string, like []string) error {
	err := fmt.Errorf("unknown %s %q for %q", kind, name, parent)
	if len(like) > 0 {
		return fmt.Errorf("%w: did you mean %s?", err, strings.Join(like, " or "))
	}
	return fmt.Errorf("%w; %s --help lists them", err, parent)
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				System  string `json:"system"`
			}{version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if a.json {
				return writeJSON(a.out, v)
			}
			_, err := fmt.Fprintf(a.out, "uid %s, %s, %s\n", v.Version, v.Go, v.System)
			return err
		},
	}
}

// version returns the module's version. Go puts the revision into it when it builds a checkout.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}
