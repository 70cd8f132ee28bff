package model

import (
	"database/sql/driver"
	"strconv"
)

// TextOf returns the text that a driver sends for a value. ok is false if the driver sends something else.
func TextOf(v any) (text string, ok bool) {
	sent, err := driver.DefaultParameterConverter.ConvertValue(v)
	switch sent := sent.(type) {
	case string:
		return sent, err == nil
	case []byte:
		return string(sent), err == nil && sent != nil
	}
	return "", false
}

// IsDecimal reports whether a text is a signed or unsigned integer of 64 bits.
func IsDecimal(text string) bool {
	_, signed := strconv.ParseInt(text, 10, 64)
	_, unsigned := strconv.ParseUint(text, 10, 64)
	return signed == nil || unsigned == nil
}
