package generator

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

var layoutText = regexp.MustCompile(`^\d+-(\d+)-(\d+)-(\d+)/(\S+)@(-?)(\d+)(?:\.(\d{1,9}))?$`)

// ParseLayout is the inverse of [Layout.String]: it reads only what String writes. The error wraps
// [ErrLayout].
func ParseLayout(text string) (Layout, error) {
	m := layoutText.FindStringSubmatch(text)
	if m == nil {
		return Layout{}, fmt.Errorf("%w: cannot read %.80q; a layout is written like %s", ErrLayout, text, DefaultLayout())
	}
	var l Layout
	var errs []error
	for i, bits := range []*uint8{&l.TimeBits, &l.WorkerBits, &l.SequenceBits} {
		n, err := strconv.ParseUint(m[1+i], 10, 8)
		*bits, errs = uint8(n), append(errs, err)
	}
	tick, err := time.ParseDuration(m[4])
	errs = append(errs, err)
	seconds, err := strconv.ParseInt(m[5]+m[6], 10, 64)
	if err := errors.Join(append(errs, err)...); err != nil {
		return Layout{}, fmt.Errorf("%w: %.80q: %w", ErrLayout, text, err)
	}
	ns, _ := strconv.ParseInt(m[5]+(m[7] + "000000000")[:9], 10, 64) // nine digits
	l.Tick, l.Epoch = tick, time.Unix(seconds, ns).UTC()
	if err := l.Validate(); err != nil {
		return Layout{}, err
	}
	if l.String() != text {
		return Layout{}, fmt.Errorf("%w: %.80q must be written as %s", ErrLayout, text, l)
	}
	return l, nil
}
