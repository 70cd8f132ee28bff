package functions

import (
	"fmt"
	"strconv"
	"strings"
)

// tableOfID returns the SELECT for the table of the id in the parameter uid, with the checks of Plugin.Locate.
func (f *formulas) tableOfID(prefix string) string {
	const id = "uid"
	return strings.NewReplacer("{in}", prefix, "{tick}", f.tickOf(id)).Replace(
		`SELECT CASE WHEN "N"."DATABASE_NAME" = '' THEN "N"."TABLE_NAME"
  ELSE CONCAT("N"."DATABASE_NAME", '.', "N"."TABLE_NAME") END
FROM {in}"WORKER_NODE" "N" JOIN {in}"WORKER_SLOT" "S" ON "S"."ID" = "N"."SLOT"
WHERE ` + f.idsOf(id, 1, f.MaxTick()) + `
  AND "N"."ID" = ` + f.workerOf(id) + `
  AND ` + f.located() + `
  AND {tick} > "N"."START_TICK" AND {tick} <= "S"."FENCE"
  AND EXISTS (SELECT * FROM {in}"WORKER_SESSION" "X"
    WHERE "X"."SLOT" = "S"."ID" AND "X"."START_TICK" < {tick})
  AND NOT EXISTS (SELECT * FROM {in}"WORKER_SESSION" "X"
    WHERE "X"."SLOT" = "S"."ID" AND "X"."START_TICK" >= {tick} AND "X"."BEFORE_TICK" < {tick})`)
}

// located returns the condition for rows whose ids can be located. Rows of UidGenerator have an empty LAYOUT, and
// rows that an older version of the plugin reserved have an empty TABLE_NAME.
func (f *formulas) located() string {
	return fmt.Sprintf(`"N"."LAYOUT" = '%s' AND "N"."SLOT" <> 0 AND "N"."TABLE_NAME" <> ''`, f.Layout)
}

// origin returns the SELECT of the view uid_origin: for each worker id and each session of its slot, the ids that
// the process of this session may have made. It follows the same rules as tableOfID.
//
// The view looks only at the next session, because the minimum over all later sessions takes quadratic time on
// MariaDB. The next session is enough, because BEFORE_TICK ascends with START_TICK: BEFORE_TICK is the FENCE
// of the reclaimed slot, or the last tick granted to its holder. Both only grow while no commits are lost.
func (f *formulas) origin(prefix string) string {
	last := strconv.FormatInt(f.MaxTick(), 10)
	from := "(" + f.least(f.greatest(`"N"."START_TICK"`, `"X"."START_TICK"`, "0"), last) + " + 1)"
	until := f.least(`"S"."FENCE"`, `COALESCE("X"."NEXT_TICK", `+last+`)`, `COALESCE("X"."END_TICK", `+last+`)`, last)
	worker := fmt.Sprintf(`("N"."ID" << %d)`, f.SequenceBits)
	launched := `"X"."LAUNCHED"`
	if f.dialect == "postgres" {
		launched += ` AT TIME ZONE 'UTC'`
	}
	after := func(tick string) string { return f.timeOfTick("(" + f.least(f.greatest(tick, "-1"), last) + " + 1)") }
	return strings.NewReplacer("{in}", prefix, "{from}", from, "{until}", until, "{launched}", launched,
		"{heldFrom}", after(`"X"."START_TICK"`), "{heldUntil}", after(`"X"."NEXT_TICK"`),
		"{first}", f.signed(fmt.Sprintf("(%s << %d) | %s", from, f.timeShift(), worker)),
		"{last}", f.signed(fmt.Sprintf("(%s << %d) | %s | %d", until, f.timeShift(), worker, f.MaxSequence())),
		"{located}", f.located(), "{workers}", strconv.FormatInt(f.MaxWorkerID(), 10)).Replace(
		`SELECT "N"."ID" AS worker_id, "N"."DATABASE_NAME" AS database_name, "N"."TABLE_NAME" AS table_name,
  "N"."SLOT" AS slot, "X"."APPLICATION" AS application, "X"."HOST_NAME" AS host_name, "X"."PORT" AS port,
  "X"."TYPE" AS type, {launched} AS launched,
  {heldFrom} AS held_from,
  CASE WHEN "X"."NEXT_TICK" IS NOT NULL THEN {heldUntil} END AS held_until,
  {first} AS first_id,
  {last} AS last_id
FROM {in}"WORKER_NODE" "N" JOIN {in}"WORKER_SLOT" "S" ON "S"."ID" = "N"."SLOT" JOIN (
  SELECT "Y".*, LEAD("Y"."START_TICK") OVER (PARTITION BY "Y"."SLOT" ORDER BY "Y"."START_TICK") AS "NEXT_TICK",
    LEAD("Y"."BEFORE_TICK") OVER (PARTITION BY "Y"."SLOT" ORDER BY "Y"."START_TICK") AS "END_TICK"
  FROM {in}"WORKER_SESSION" "Y"
) "X" ON "X"."SLOT" = "S"."ID"
WHERE {located} AND "N"."ID" BETWEEN 0 AND {workers} AND {from} <= {until}`)
}
