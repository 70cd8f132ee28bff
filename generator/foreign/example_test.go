package foreign_test

import (
	"fmt"
	"time"

	"github.com/uidplugin/uidplugin/generator/foreign"
)

// Which system made a key? The time that it would carry tells, if the age of its row is known.
func ExampleIdentify() {
	created := time.Date(2022, 11, 14, 20, 56, 0, 0, time.UTC)
	for _, s := range foreign.Identify(1592258304000000000, created, time.Hour) {
		parts, err := s.Decode(1592258304000000000)
		if err != nil {
			panic(err)
		}
		fmt.Println(s.Name, parts.Time.Format(time.DateOnly), parts.WorkerID)
	}
	// Output: Twitter snowflake, Leaf 2022-11-14 352
}
