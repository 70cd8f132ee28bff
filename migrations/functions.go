package migrations

import (
	"context"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/internal/functions"
	"gorm.io/gorm"
)

// CreateFunctions creates the view uid_origin and, except on SQLite, the functions uid_time, uid_worker and uid_table.
// It replaces existing ones. They contain the layout, so call it again for a new id space. Up never calls it.
//
// The layout is read from WORKER_REGISTRY. With the option WithRegistry, pass the handle of the registry.
//
// Statements use the pool of db and bypass GORM's callbacks; db must not be a transaction. Each statement may take a
// minute. Do not call CreateFunctions from two processes at once, because on MySQL one of them may fail.
//
// The error wraps uidplugin.ErrTable if the registry cannot be read, and [errors.ErrUnsupported] for another
// dialect. The view is created first, so a user without the right to create functions still gets the view.
func CreateFunctions(ctx context.Context, db *gorm.DB, options ...Option) error {
	d, _, err := open(ctx, db, options)
	if err != nil {
		return err
	}
	return functions.Create(ctx, d)
}

// FunctionStatements returns the statements of [CreateFunctions] as a script for an administrator. Each ends with a
// semicolon. On MySQL, run them in the database of the registry. FunctionStatements only reads, and returns the same
// errors as CreateFunctions.
func FunctionStatements(ctx context.Context, db *gorm.DB, options ...Option) (string, error) {
	d, _, err := open(ctx, db, options)
	if err != nil {
		return "", err
	}
	return functions.Statements(ctx, d)
}

// FunctionStatementsFor returns the script of [FunctionStatements] without a database. Pass the name of GORM's dialect
// (mysql, postgres or sqlite) and the layout of the registry. schema is the unquoted schema of the tables on
// PostgreSQL; empty means public. MySQL and SQLite ignore it. The error wraps [errors.ErrUnsupported] for a
// dialect other than these three, and [generator.ErrLayout] for an invalid layout.
func FunctionStatementsFor(dialect, schema string, l generator.Layout) (string, error) {
	return functions.StatementsFor(dialect, schema, l)
}
