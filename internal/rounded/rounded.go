// Package rounded recognizes ids that a program has rounded because it reads numbers as floating point. JavaScript
// keeps 53 bits and writes up to 17 digits. Spreadsheets keep 15 digits. A rounded id may be another table's.
package rounded

import "strconv"

// Looks reports whether an id may be rounded. True is no proof, because it also holds for one intact id in a
// hundred, and for more ids if the worker id ends in zero bits.
func Looks(id int64) bool { return id >= 1<<53 && (int64(float64(id)) == id || id%100 == 0) }

// Is reports whether rounding original may give id.
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

// Originals returns the numbers that rounding may turn into id.
func Originals(id int64) (list []int64) {
	low, high := Near(id)
	for n := low; n < high; n++ {
		if Is(id, n) {
			list = append(list, n)
		}
	}
	return list
}

// written returns what is read back after id was written as a float64. digits limits the digits, unless it is -1.
func written(id int64, digits int) int64 {
	if digits > 0 {
		digits-- // because FormatFloat counts digits after the point
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

// Near returns the bounds of the numbers that rounding may turn into id.
func Near(id int64) (low, high int64) {
	distance := int64(1024) // enough for 17 digits and for 53 bits
	for unit := int64(1000); id%unit == 0 && unit <= 10_000; unit *= 10 {
		distance = unit
	}
	if id > 1<<63-1-distance {
		return id - distance, 1<<63 - 1
	}
	return id - distance, id + distance
}
