package follow

import engine "github.com/uidplugin/uidplugin/internal/follow"

var (
	// ErrTooLate reports that a followed table has refused a row, because its id was older than the slack of [Enable]
	// allows. The row was not inserted. Fields that the plugin had set are zero again, so create the same structs
	// again. Rows created before it in the same transaction keep theirs, also earlier batches of CreateInBatches, so
	// repeat a transaction with new structs. If the process's clock is behind, the plugin has set its own to the
	// database's, so the next try succeeds. Ids that the application has set stay refused. Creates and Exec return it.
	ErrTooLate = engine.ErrTooLate

	// ErrNotEnabled reports a table without [Enable], or whose trigger was dropped or replaced since. Rows and Settled
	// return it.
	ErrNotEnabled = engine.ErrNotEnabled

	// ErrRemoved reports that an operator has removed the cursor of a consumer that runs. [Consume] returns it.
	ErrRemoved = engine.ErrRemoved

	// Skip makes [Consume] go on after a row that cannot be handled: return it from the handler, or an error that wraps
	// it. What the handler has done in its transaction is rolled back, and the log has a line. To keep the row elsewhere,
	// write it there through tx and return nil instead.
	Skip = engine.ErrSkip
)
