package migrations

// A Table is a table as a file describes it.
type Table struct {
	Name    string
	Create  string
	Columns []string
	Define  map[string]string
	Index   string
	Key     string
}

func Parse(dialect string) (list []Table, err error) {
	tables, err := parse(dialect)
	for _, t := range tables {
		list = append(list, Table{t.name, t.create, t.columns, t.define, t.index, t.key})
	}
	return list, err
}
