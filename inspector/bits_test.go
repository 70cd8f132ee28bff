package inspector

import (
	"testing"

	"github.com/uidplugin/uidplugin/generator"
)

func TestFieldsWith_IsTheNumber(t *testing.T) {
	t.Parallel()
	for _, l := range []generator.Layout{
		generator.DefaultLayout(), generator.SnowflakeLayout(), generator.JSSafeLayout(),
		{TimeBits: 61, WorkerBits: 1, SequenceBits: 1}, {TimeBits: 1, WorkerBits: 1, SequenceBits: 1},
	} {
		for _, id := range []int64{0, 1, 1<<63 - 1, 1176816959799427126} {
			digits, bits := "", 0
			for _, f := range fieldsWith(l, id) {
				digits += f.Bits
				bits += f.Width
				if len(f.Bits) != f.Width || f.First != 63-len(digits)+f.Width {
					t.Errorf("%s: %+v", l, f)
				}
			}
			var back int64
			for _, d := range digits {
				back = back<<1 | int64(d-'0')
			}
			if bits != 64 || back != id {
				t.Errorf("%s: %d is %s", l, id, digits)
			}
		}
	}
}
