package upsert

// A detection is how to learn which rows of a statement had conflicts.
type detection int

const (
	// GORM sets what RETURNING reads back: of each row, or nothing of a single one that was left unchanged.
	byReturning detection = iota
	// MySQL's LAST_INSERT_ID(expr) in the update part: the last insert id of the statement shows whether there was a
	// conflict, and for a single row with which.
	byLastInsertID
	// Fewer rows were changed than sent.
	byRowCount
	// A SELECT by the ids that were set, on the connection of the statement; see query.go.
	bySelect
)

// facts are what a detection depends on.
type facts struct {
	mysql    bool // the dialect is MySQL's, which includes MariaDB
	isMap    bool // the rows are maps
	single   bool // one row is sent, and not as a slice
	readable bool // GORM may read all tracked fields
	hasKey   bool // the model has a primary key

	onConflict      bool // there is an ON CONFLICT, and not only an INSERT IGNORE
	otherExpression bool // its expression is not GORM's
	doNothing       bool // rows that exist are left unchanged
	where           bool // the update part has a WHERE
	surelyUpdates   bool // each row that exists is updated
	returns         bool // GORM builds a RETURNING anyway
	canReturn       bool // the dialect has RETURNING
	wantsResult     bool // the application asked for the result by gorm.WithResult
	lastInsertFree  bool // no other code uses the last insert id
}

// A decision is how to learn of conflicts, and what to change in the statement for it.
type decision struct {
	how detection

	// matches: GORM assigns what RETURNING reads back in the order of the rows. That is right only if each row comes
	// back.
	matches bool

	updateKey       bool // rewrite DoNothing to an update of the key by itself, so that each row comes back
	addReturning    bool // RETURNING gets the tracked fields
	dropReturning   bool // RETURNING loses keys and tracked fields, as GORM would assign them to other rows
	addLastInsertID bool // the update part gets LAST_INSERT_ID(expr)
}

// detect decides for one statement.
func detect(f facts) (d decision) {
	if f.otherExpression {
		return decision{how: bySelect}
	}
	// MariaDB returns a row for each that was sent, whatever became of it.
	all := f.mysql && f.onConflict && f.returns
	d.matches = !f.isMap && f.readable && (f.single || all || !f.where && f.surelyUpdates)
	// GORM's own DoNothing does the same in MySQL's SQL. But with this rewrite GORM assigns what comes back to all
	// rows, and not only to those that have no key yet.
	d.updateKey = all && !f.isMap && !f.surelyUpdates && f.hasKey
	switch {
	case f.returns && d.matches:
		d.how, d.addReturning = byReturning, true
	case f.returns:
		d.how, d.dropReturning = bySelect, true
	case f.mysql && f.onConflict && !f.wantsResult && f.lastInsertFree:
		d.how, d.addLastInsertID = byLastInsertID, true
	case f.mysql && f.onConflict:
		d.how = bySelect
	case f.doNothing:
		d.how = byRowCount
	case d.matches && !f.wantsResult && f.canReturn:
		d.how, d.addReturning = byReturning, true
	default:
		d.how = bySelect
	}
	return d
}
