package upsert

// A detection is a way to find the rows of a statement that had conflicts.
type detection int

const (
	// RETURNING reads back each row, or nothing for a single unchanged row. GORM sets the fields.
	byReturning detection = iota
	// MySQL's LAST_INSERT_ID(expr) in the update part. The last insert id then shows whether there was a conflict,
	// and for a single row the key of the existing row.
	byLastInsertID
	// The number of changed rows is below the number of sent rows.
	byRowCount
	// A SELECT by the ids that were set, on the connection of the statement; see query.go.
	bySelect
)

// facts are the inputs of detect.
type facts struct {
	mysql    bool // MySQL or MariaDB
	isMap    bool // the rows are maps
	single   bool // one row that is not in a slice
	readable bool // GORM may read all tracked fields
	hasKey   bool // the model has a primary key

	onConflict      bool // there is an ON CONFLICT, instead of only an INSERT IGNORE
	otherExpression bool // the ON CONFLICT is not a clause.OnConflict, or not in the clause ON CONFLICT
	doNothing       bool // existing rows stay unchanged
	where           bool // the update part has a WHERE
	assignsIDs      bool // the update part assigns ids, so if a row is sent twice, the id returned first may be replaced
	surelyUpdates   bool // every existing row is updated, unless a WHERE excludes it
	returns         bool // GORM builds a RETURNING anyway
	canReturn       bool // the dialect has RETURNING
	wantsResult     bool // the application asked for the result with gorm.WithResult
	lastInsertFree  bool // no other code uses the last insert id
}

// A decision is a detection, with the changes that it needs in the statement.
type decision struct {
	how detection

	// matches is true if RETURNING has every row. Otherwise GORM would mix up rows, because it goes by their order.
	matches bool

	updateKey       bool // replace DoNothing by assigning the key to itself, so that GORM reads back every row
	addReturning    bool // add the tracked fields to RETURNING
	dropReturning   bool // remove keys and tracked fields from RETURNING, because GORM would assign them to wrong rows
	addLastInsertID bool // add LAST_INSERT_ID(expr) to the update part
}

func detect(f facts) (d decision) {
	if f.otherExpression {
		return decision{how: bySelect, dropReturning: f.returns}
	}
	// MariaDB returns one row for every sent row, also after conflicts.
	all := f.mysql && f.onConflict && f.returns
	d.matches = !f.isMap && f.readable && (f.single || !f.assignsIDs && (all || !f.where && f.surelyUpdates))
	// On MySQL, GORM makes the same SQL from DoNothing as from updateKey. But with updateKey it assigns the
	// returned keys to all rows, instead of only to rows without a key.
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
