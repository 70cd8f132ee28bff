package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// Formerly, with a layout of 53 bits, times in microseconds and digits of a fraction were located as ids.
func TestIDReaderCandidates_LeavesOutTimesAndFractions(t *testing.T) {
	t.Parallel()
	r := idReader{now: func() time.Time { return time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC) }}
	const id, micros, nanos = "1177009714823692361", "1795392000000000", "1795392000000000000"
	for text, want := range map[string][]string{
		micros + " paid " + id:                       {id},
		nanos + " paid " + id:                        {id},
		"1795392000.1234567890123456 paid " + id:     {id},
		"took 0.1234567890123456 for order." + id:    {id},
		`{"ts":` + micros + `,"order":"` + id + `"}`: {id},
		"start_time=" + micros + " order=" + id:      {id},
		"paid order=" + micros:                       {micros},
		"paid 1595392000000000 of 2020":              {"1595392000000000"},
		"paid at " + micros:                          {"paid at " + micros},
		micros:                                       {micros},
	} {
		if got := r.candidates(text); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// Formerly a line of more than 16 MB ended the command without an answer for the lines after it.
func TestEachLine_ReadsLinesOfAnyLength(t *testing.T) {
	t.Parallel()
	var lengths []int
	must(t, eachLine(strings.NewReader(strings.Repeat("x", 17<<20)+"\r\n\n 12 \n345"), func(text string) error {
		lengths = append(lengths, len(text))
		return nil
	}))
	if !slices.Equal(lengths, []int{17 << 20, 2, 3}) {
		t.Errorf("lines of %d bytes", lengths)
	}
}
