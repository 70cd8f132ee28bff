package follow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uidplugin/uidplugin/internal/sqldb"
)

// errUnable reports a trigger that fails for each row. The mark still exists, and Enable keeps it when it installs
// the trigger again.
var errUnable = fmt.Errorf("%w: its trigger cannot run", ErrNotEnabled)

// complete returns an error if the table refuses all rows, because the mark or a gate (a lock of the trigger) is
// missing, or because the trigger cannot run. A mark or gate that this user may not read counts as present.
func (s *statements) complete(ctx context.Context, db *sqldb.DB) error {
	sequence := s.flavor.in(s.table, s.names.mark)
	parts := []string{"FROM " + s.gates() + s.gate(idleGate), "FROM " + s.gates() + s.gate(usedGate)}
	switch s.flavor {
	case Postgres:
		parts = []string{"WHERE to_regclass(" + s.flavor.text(sequence) + ") IS NOT NULL"}
	case MariaDB:
		parts = append(parts, "FROM "+sequence)
	case SQLite:
		parts = []string{"FROM " + s.gates() + s.row()}
	}
	for _, part := range parts {
		err := s.one(ctx, db, "SELECT 1 "+part)
		if err != nil && isMissing(err) {
			err = fmt.Errorf("%w: %w", errIncomplete, err)
		}
		if errors.Is(err, ErrNotEnabled) {
			return err
		}
	}
	var err error
	switch s.flavor {
	case Postgres:
		err = s.checkFunction(ctx, db)
	case MySQL, MariaDB:
		err = s.checkDefiner(ctx, db)
	}
	if errors.Is(err, ErrNotEnabled) {
		return err
	}
	return ctx.Err()
}

// checkFunction checks the function of the trigger on PostgreSQL. The function names the schema, which may have
// been renamed, and runs with the rights of its owner, who may have changed.
func (s *statements) checkFunction(ctx context.Context, db *sqldb.DB) error {
	sequence := s.flavor.in(s.table, s.names.mark)
	named, readable, owner := true, true, ""
	err := db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&named, &readable, &owner) },
		"SELECT strpos(prosrc, "+s.flavor.text(s.flavor.text(sequence))+") > 0, has_sequence_privilege(proowner, to_regclass("+
			s.flavor.text(sequence)+"), 'USAGE, SELECT'), quote_ident(pg_get_userbyid(proowner)) FROM pg_proc WHERE oid = "+s.function())
	switch {
	case err != nil:
		return err
	case !named:
		return fmt.Errorf("%w: its function has the former name of the schema; call follow.Enable", errUnable)
	case !readable:
		return fmt.Errorf("%w: GRANT USAGE ON SEQUENCE %s TO %s, the owner of its function", errUnable, sequence, owner)
	}
	return nil
}

// checkDefiner checks on MySQL and MariaDB that the trigger's definer exists. It skips roles, which have no host.
func (s *statements) checkDefiner(ctx context.Context, db *sqldb.DB) error {
	missing := ""
	err := db.Query(ctx, func(r *sql.Rows) error { return r.Scan(&missing) },
		"SELECT t.DEFINER FROM information_schema.TRIGGERS t WHERE t.TRIGGER_SCHEMA = "+s.flavor.schema(s.table)+
			" AND t.TRIGGER_NAME = "+s.flavor.text(s.names.trigger)+" AND t.DEFINER LIKE '_%@_%' AND NOT EXISTS (SELECT 1"+
			" FROM mysql.user u WHERE CAST(CONCAT(u.User, '@', u.Host) AS BINARY) = CAST(t.DEFINER AS BINARY))")
	if err != nil || missing == "" {
		return err
	}
	return fmt.Errorf("%w: it has the rights of the account %s, which does not exist; call follow.Enable", errUnable, missing)
}
