package consumer

import "slices"

// unknown is a COMMIT without an answer: the server has done it, will never do it, or does it later.
func (w *world) unknown(s modelState, i int) {
	s.Faults++
	tx := s.P[i].Tx
	ids := slices.Clone(s.P[i].ids)
	done, never, later := s, s, s
	done.P[i].commitTo(&done.DB)
	later.Late, later.IsLate = tx, true
	for _, next := range []modelState{done, never, later} {
		for _, outcome := range []Outcome{Again, Failed} { // Failed after several
			state := next
			state.P[i].ids = slices.Clone(ids)
			state.P[i].end(outcome)
			w.add(state)
		}
	}
}

func (w *world) late(s modelState) {
	if !s.IsLate {
		return
	}
	p := modelProcess{Tx: s.Late}
	s.Late, s.IsLate = modelDB{}, false
	w.add(s)
	p.commitTo(&s.DB)
	w.add(s)
}

// harm kills a process, or its connection, or lets the server choose its transaction as the victim of a deadlock.
func (w *world) harm(s modelState, i int) {
	if s.Faults >= w.faults {
		return
	}
	s.Faults++
	if p := &s.P[i]; p.Phase != idle && p.Phase != settle && !p.Gone {
		gone := s
		gone.P[i].Gone, gone.P[i].Tx = true, modelDB{}
		w.add(gone)
	}
	s.newProcess(i, w.size, s.P[i].Born+1)
	w.add(s)
}

// insert adds rows. After a loss they come below those that are lost.
func (w *world) insert(s modelState) {
	if s.Inserted >= w.inserts {
		return
	}
	next := s.DB.Published + 1
	if s.Lost { // below the rows that are lost
		next--
	}
	s.Inserted++
	s.DB.Rows |= bit(next)
	s.DB.Published = next + 1
	w.add(s)
}

// operate resets the cursor with the effects above it, pauses, resumes, or removes the row.
func (w *world) operate(s modelState) {
	if s.DB.Exists && s.DB.Row.Paused && s.lockedBy() < 0 {
		resumed := s
		resumed.DB.Row.Paused = false
		w.add(resumed)
	}
	if !w.operates || s.Operated || !s.DB.Exists || s.lockedBy() >= 0 {
		return
	}
	s.Operated = true
	back := s
	back.DB.Row.Last, back.DB.N, back.DB.Total, back.DB.Effects = 0, 0, 0, [8]int64{}
	w.add(back)
	forward := s
	for id := range int64(6) {
		if forward.DB.Rows&bit(id) != 0 && id > forward.DB.Row.Last {
			forward.DB.Exempt |= bit(id)
		}
	}
	forward.DB.Row.Last = max(5, s.DB.Row.Last)
	w.add(forward)
	paused := s
	paused.DB.Row.Paused, paused.DB.Row.Holder = true, ""
	w.add(paused)
	if w.faults == 0 { // otherwise a process that begins later may insert it
		s.DB.Exists, s.DB.Row, s.Removed = false, Row{}, true
		for i := range s.P {
			if !s.P[i].Saw {
				s.P[i].Ended = true
			}
		}
		w.add(s)
	}
}

// lose lets the database fall back to an earlier state once.
func (w *world) lose(s modelState) {
	switch {
	case !w.loses || s.Lost:
	case !s.IsSaved:
		s.Saved, s.IsSaved = s.DB, true
		w.add(s)
	default:
		s.DB, s.Lost, s.IsLate, s.Late = s.Saved, true, false, modelDB{}
		s.Saved = modelDB{}
		for i := range s.P {
			if p := &s.P[i]; p.Phase != idle && p.Phase != settle {
				p.Gone, p.Tx = true, modelDB{}
			}
		}
		w.add(s)
	}
}
