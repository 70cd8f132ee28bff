package follow

import engine "github.com/uidplugin/uidplugin/internal/follow"

var (
	// ErrTooLate reports that a followed table has refused a row, because its id was older than the slack of [Enable]
	// allows. Creates and Exec return it. The row was not inserted. Fields that the plugin had set are zero again, so
	// you can create the same structs again. Structs that the transaction or CreateInBatches has created before
	// keep their ids, so repeat a transaction with new structs. If the clock of the process is behind, the plugin
	// now uses the database's time, so the next try succeeds. Ids that the application has set stay refused.
	ErrTooLate = engine.ErrTooLate

	// ErrNotEnabled reports a table for which [Enable] was not called, or whose trigger was dropped or replaced.
	// Rows, Consume and Settled return it.
	ErrNotEnabled = engine.ErrNotEnabled

	// ErrRemoved reports that an operator has removed the cursor of a consumer that runs. [Consume] returns it.
	ErrRemoved = engine.ErrRemoved

	// Skip makes [Consume] go on after a row that cannot be handled: return it from the handler, or an error that wraps
	// it. What the handler has done in its transaction is rolled back, and the log has a line. To keep such a row,
	// write it to another table through tx and return nil instead.
	Skip = engine.ErrSkip
)
