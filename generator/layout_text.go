package generator

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

var layoutText = regexp.MustCompile(`^\d+-(\d+)-(\d+)-(\d+)/(\S+)@(-?)(\d+)(?:\.(\d{1,9}))?$`)

// ParseLayout is the inverse of [Layout.String]: it reads nothing that String does not write. The error wraps [ErrLayout].
func ParseLayout(text string) (Layout, error) {
	l, err := parseLayout(text)
	if err != nil && !errors.Is(err, ErrLayout) {
		err = fmt.Errorf("%w: %w", ErrLayout, err)
	}
	if err != nil {
		return Layout{}, err
	}
	return l, nil
}

func parseLayout(text string) (l Layout, err error) {
	m := layoutText.FindStringSubmatch(text)
	if m == nil {
		return l, fmt.Errorf("%.80q is no layout, such as %s", text, DefaultLayout())
	}
	for i, bits := range []*uint8{&l.TimeBits, &l.WorkerBits, &l.SequenceBits} {
		n, failed := strconv.ParseUint(m[1+i], 10, 8)
		*bits, err = uint8(n), errors.Join(err, failed)
	}
	tick, failed := time.ParseDuration(m[4])
	seconds, failedToo := strconv.ParseInt(m[5]+m[6], 10, 64)
	if err := errors.Join(err, failed, failedToo); err != nil {
		return l, err
	}
	ns, _ := strconv.ParseInt(m[5]+(m[7] + "000000000")[:9], 10, 64) // nine digits
	l.Tick, l.Epoch = tick, time.Unix(seconds, ns).UTC()
	if err := l.Validate(); err != nil {
		return l, err
	}
	if l.String() != text {
		return l, fmt.Errorf("a layout like this is written %s", l)
	}
	return l, nil
}
