// Package rounded knows what becomes of ids in programs that read them as floating point numbers. JavaScript keeps 53
// bits and writes up to 17 digits, and spreadsheets keep 15 digits. The result may be an id of another table.
package rounded

import "strconv"

// Looks reports whether an id may be a rounded one: it is not below 2^53, and it is a whole float64, or its last digits
// are zeros. So may be an id that nothing has rounded: one in a hundred, or more in a table whose worker id ends in
// zeros.
func Looks(id int64) bool { return id >= 1<<53 && (int64(float64(id)) == id || id%100 == 0) }

// Is reports whether id is what becomes of another one, original.
func Is(id, original int64) bool {
	if id == original || original < 1<<53 {
		return false
	}
	if int64(float64(original)) == id || written(original, -1) == id {
		return true
	}
	text := strconv.FormatInt(original, 10)
	unit := int64(1)
	for range len(text) - 15 {
		unit *= 10
	}
	return written(original, 15) == id || written(original, 16) == id || original/unit*unit == id // cut off after 15 digits
}

// written returns an id as a program reads it that writes a float64 with some significant digits; -1 means as many as
// are needed.
func written(id int64, digits int) int64 {
	if digits > 0 {
		digits-- // FormatFloat counts those after the point
	}
	mantissa := strconv.FormatFloat(float64(id), 'e', digits, 64)
	f, err := strconv.ParseFloat(mantissa, 64)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strconv.FormatFloat(f, 'f', -1, 64), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Near returns the smallest and the largest id that id can be rounded from.
func Near(id int64) (low, high int64) {
	distance := int64(1024) // 17 digits, or 53 bits
	for unit := int64(1000); id%unit == 0 && unit <= 10_000; unit *= 10 {
		distance = unit
	}
	if id > 1<<63-1-distance {
		return id - distance, 1<<63 - 1
	}
	return id - distance, id + distance
}
