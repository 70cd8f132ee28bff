package migrations

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

var layoutText = regexp.MustCompile(`^\d+-(\d+)-(\d+)-(\d+)/(\S+)@(-?)(\d+)(?:\.(\d{1,9}))?$`)

// parseLayout is the inverse of [generator.Layout.String].
func parseLayout(text string) (l generator.Layout, err error) {
	m := layoutText.FindStringSubmatch(text)
	if m == nil {
		return l, errors.New("this is no layout, such as " + generator.DefaultLayout().String())
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
