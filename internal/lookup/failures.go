package lookup

import (
	"cmp"
	"slices"
)

// failureForEach returns a failure for each id. It passes the id to format after args.
func failureForEach(ids []int64, format string, args ...any) (errs []error) {
	for _, id := range ids {
		errs = append(errs, failuref(id, format, append(slices.Clip(args), id)...))
	}
	return errs
}

func withoutFailures(errs []error) []error {
	return slices.DeleteFunc(slices.Clone(errs), func(err error) bool { _, ok := err.(*failure); return ok })
}

// errorOf turns the error of one id, or of a query, into an error for callers.
func (loc *Locator) errorOf(err error) error {
	if f, ok := err.(*failure); ok {
		return loc.IDError(f.id, f.err)
	}
	return err
}

// errorsOf joins the failures in errs, in the order of their ids in the parameter ids. If queries have failed, it
// joins only their errors, because these may explain why ids are missing.
func (loc *Locator) errorsOf(errs []error, ids []int64) error {
	if others := withoutFailures(errs); len(others) > 0 {
		return loc.joined(others)
	}
	if len(errs) < 2 {
		return loc.joined(errs)
	}
	index := make(map[int64]int, len(ids))
	for i, id := range slices.Backward(ids) { // backward, so the first of equal ids wins
		index[id] = i
	}
	slices.SortStableFunc(errs, func(a, b error) int { return cmp.Compare(index[a.(*failure).id], index[b.(*failure).id]) })
	return loc.joined(errs)
}

func (loc *Locator) joined(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	all := make(idErrors, len(errs))
	for i, err := range errs {
		all[i] = loc.errorOf(err)
	}
	return all
}
