package capacity_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/uidplugin/uidplugin/generator"
	"github.com/uidplugin/uidplugin/generator/capacity"
)

func ExamplePicture() {
	picture, err := capacity.Picture(generator.DefaultLayout(), 1_113_799_104_921_619_749)
	if err != nil {
		panic(err)
	}
	fmt.Print(picture)
	// Output:
	// id     1113799104921619749
	// field  sign time                                      worker id          seq
	// bits   0    00011110111010100000010011000101000000000 000000010011010010 0101
	// width  1    41                                        18                 4
	// value  0    265550400000                              1234               5
	// time   2018-01-01 00:00:00 UTC + 265550400000 x 1ms = 2026-06-01 12:00:00 UTC
}

func ExamplePicture_unused() {
	picture, err := capacity.Picture(generator.JSSafeLayout(), 6_755_399_441_055_751)
	if err != nil {
		panic(err)
	}
	fmt.Print(picture)
	// Output:
	// id     6755399441055751
	// field  sign unused     time                             worker sequence
	// bits   0    0000000000 11000000000000000000000000000000 00000  0000000000000111
	// width  1    10         32                               5      16
	// value  0    0          3221225472                       0      7
	// time   2019-01-01 00:00:00 UTC + 3221225472 x 1s = 2121-01-28 16:51:12 UTC
}

func TestPicture_DrawsNarrowFieldsAndLongInstants(t *testing.T) {
	t.Parallel()

	epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		name   string
		layout generator.Layout
		id     int64
		want   string
	}{
		{"snowflake", generator.SnowflakeLayout(), 1541815603606036480, `
id     1541815603606036480
field  sign time                                      worker id  sequence
bits   0    00101010110010110100001000111110110001000 0101111010 000000000000
width  1    41                                        10         12
value  0    367597485448                              378        0
time   2010-11-04 01:42:54.657 UTC
       + 367597485448 x 1ms
       = 2022-06-28 16:07:40.105 UTC
`},
		{"one bit each", generator.Layout{TimeBits: 1, WorkerBits: 1, SequenceBits: 1, Tick: time.Hour, Epoch: epoch}, 5, `
id     5
field  sign unused                                                       t w seq
bits   0    000000000000000000000000000000000000000000000000000000000000 1 0 1
width  1    60                                                           1 1 1
value  0    0                                                            1 0 1
time   2026-01-01 00:00:00 UTC + 1 x 1h0m0s = 2026-01-01 01:00:00 UTC
`},
		{"61 bits of time", generator.Layout{TimeBits: 61, WorkerBits: 1, SequenceBits: 1, Tick: time.Millisecond, Epoch: epoch}, math.MaxInt64 - 2, `
id     9223372036854775805
field  sign time                                                          w seq
bits   0    1111111111111111111111111111111111111111111111111111111111111 0 1
width  1    61                                                            1 1
value  0    2305843009213693951                                           0 1
time   2026-01-01 00:00:00 UTC
       + 2305843009213693951 x 1ms
       = 73071282-02-26 19:48:13.951 UTC
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := capacity.Picture(tt.layout, tt.id)
			if err != nil || got != tt.want[1:] {
				t.Errorf("Picture(%d) = %v\n%s\nwant\n%s", tt.id, err, got, tt.want[1:])
			}
		})
	}
}

// A number that is no id of the layout has no picture. The error is that of Decompose.
func TestPicture_ReturnsTheErrorOfDecompose(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		layout generator.Layout
		id     int64
	}{
		{generator.DefaultLayout(), -1},
		{generator.DefaultLayout(), math.MinInt64},
		{generator.JSSafeLayout(), 1 << 53},
		{generator.Layout{}, 1},
	} {
		_, want := tt.layout.Decompose(tt.id)
		got, err := capacity.Picture(tt.layout, tt.id)
		if got != "" || !errors.Is(err, generator.ErrLayout) || err.Error() != want.Error() {
			t.Errorf("%v: Picture(%d) = %q, %v; want the error of Decompose, %v", tt.layout, tt.id, got, err, want)
		}
	}
}
