package capacity

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/uidplugin/uidplugin/generator"
)

// pictureWidth is the largest width of a picture: the columns of a plain terminal.
const pictureWidth = 80

// Picture draws id as the layout l splits it. It returns lines of plain ASCII, each with a newline and at most 80
// columns wide. They show the bits, the width and the value of each field. The last line, which is split in three
// if it is too long, has the start of the tick in the time field.
//
//	id     1113799104921619749
//	field  sign time                                      worker id          seq
//	bits   0    00011110111010100000010011000101000000000 000000010011010010 0101
//	width  1    41                                        18                 4
//	value  0    265550400000                              1234               5
//	time   2018-01-01 00:00:00 UTC + 265550400000 x 1ms = 2026-06-01 12:00:00 UTC
//
// Bits that the layout does not use are a field of their own, between sign and time. A name that is too long for its
// field is shortened, if necessary to its first letter. Errors are as in [generator.Layout.Decompose].
func Picture(l generator.Layout, id int64) (string, error) {
	p, err := l.Decompose(id)
	if err != nil {
		return "", err
	}
	tick := l.TickAt(p.Time)
	fields := []pictureField{
		{[]string{"sign"}, 1, 0},
		{[]string{"unused", "u"}, 63 - l.TimeBits - l.WorkerBits - l.SequenceBits, 0},
		{[]string{"time", "t"}, l.TimeBits, tick},
		{[]string{"worker id", "worker", "w"}, l.WorkerBits, p.WorkerID},
		{[]string{"sequence", "seq", "s"}, l.SequenceBits, p.Sequence},
	}
	if fields[1].bits == 0 {
		fields = append(fields[:1], fields[2:]...)
	}

	rows := [4]string{"field ", "bits  ", "width ", "value "}
	spare := pictureWidth - len(rows[0]) - len(fields) - 64 // one space before each field
	for _, f := range fields {
		column := int(f.bits)
		names := f.names
		for len(names) > 1 && len(names[0]) > column+spare {
			names = names[1:]
		}
		if more := len(names[0]) - column; more > 0 {
			column, spare = column+more, spare-more
		}
		for i, text := range [4]string{
			names[0],
			fmt.Sprintf("%0*b", f.bits, f.value),
			strconv.Itoa(int(f.bits)),
			strconv.FormatInt(f.value, 10), // never more digits than bits
		} {
			rows[i] += fmt.Sprintf(" %-*s", column, text)
		}
	}

	var out strings.Builder
	fmt.Fprintf(&out, "id     %d\n", id)
	for _, row := range rows {
		out.WriteString(strings.TrimRight(row, " ") + "\n")
	}
	when := fmt.Sprintf("time   %s + %d x %v = %s", exact(l.Epoch), tick, l.Tick, exact(p.Time))
	if len(when) > pictureWidth {
		when = strings.NewReplacer(" + ", "\n       + ", " = ", "\n       = ").Replace(when)
	}
	out.WriteString(when + "\n")
	return out.String(), nil
}

// A pictureField is one column of a picture. names are from long to short.
type pictureField struct {
	names []string
	bits  uint8
	value int64
}

// exact writes an instant with all the digits that it has.
func exact(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.999999999 MST") }
