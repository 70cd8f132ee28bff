package inspector

import (
	"fmt"
	"strings"

	"github.com/uidplugin/uidplugin/generator"
)

// A field is a field of the layout, such as the worker id.
type field struct {
	Name  string `json:"name"` // sign, unused, time, worker id or sequence
	Width int    `json:"width"`
	First int    `json:"first_bit"`       // highest bit; the sign is bit 63
	Bits  string `json:"bits,omitempty"`  // 0 and 1, the highest first; empty without an id
	Value string `json:"value,omitempty"` // decimal; empty without an id
}

// Last returns the lowest bit of the field.
func (f field) Last() int { return f.First - f.Width + 1 }

// Cells returns the bits as texts.
func (f field) Cells() []string { return strings.Split(f.Bits, "") }

// Class returns the CSS class of the field.
func (f field) Class() string {
	name, _, _ := strings.Cut(f.Name, " ")
	return name
}

// fieldsOf returns the fields of a layout, the highest first.
func fieldsOf(l generator.Layout) []field {
	fields := []field{{Name: "sign", Width: 1}}
	if unused := 63 - int(l.TimeBits) - int(l.WorkerBits) - int(l.SequenceBits); unused > 0 {
		fields = append(fields, field{Name: "unused", Width: unused})
	}
	fields = append(fields,
		field{Name: "time", Width: int(l.TimeBits)},
		field{Name: "worker id", Width: int(l.WorkerBits)},
		field{Name: "sequence", Width: int(l.SequenceBits)})
	first := 63
	for i := range fields {
		fields[i].First = first
		first -= fields[i].Width
	}
	return fields
}

func fieldsWith(l generator.Layout, id int64) []field {
	fields := fieldsOf(l)
	for i, f := range fields {
		value := uint64(id) >> f.Last() & (1<<f.Width - 1)
		fields[i].Bits = fmt.Sprintf("%0*b", f.Width, value)
		fields[i].Value = fmt.Sprint(value)
	}
	return fields
}
