package catalog

import "testing"

// The warning about a table under another name must not be about a table of another model that has more columns.
func TestColumnsIn_CountsDefinitionsOfColumns(t *testing.T) {
	t.Parallel()

	for create, want := range map[string]int{
		"CREATE TABLE `x` (`id` bigint AUTO_INCREMENT,`n` decimal(10,2) DEFAULT (1),PRIMARY KEY (`id`),CONSTRAINT `fk` FOREIGN KEY (`n`) REFERENCES `y`(`id`))": 2,
		`CREATE TABLE "x" ("id" bigserial,"a" text, "b" text,PRIMARY KEY ("id"),UNIQUE ("a","b"))`:                                                              3,
		"CREATE TABLE x": 0, "": 0,
	} {
		if got := columnsIn(create); got != want {
			t.Errorf("%d columns in %s, want %d", got, create, want)
		}
	}
}
