CREATE TABLE IF NOT EXISTS {{.Marks}} (
  "TABLE_NAME" varchar(128) NOT NULL PRIMARY KEY,
  "KEY_COLUMN" varchar(128) NOT NULL,
  "SLACK" bigint NOT NULL, -- in milliseconds
  "PUBLISHED" bigint NOT NULL,
  "TRIGGER_ID" text NOT NULL,
  "RECENT" varchar(1000) NOT NULL DEFAULT '', -- marks that were published before
  "CLOSER" varchar(64) NOT NULL DEFAULT '',
  "CLOSER_UNTIL" bigint NOT NULL DEFAULT 0
)
---
CREATE SEQUENCE IF NOT EXISTS {{.Mark}}
---
-- Unlike setval, it never lowers the mark.
SELECT nextval({{text .Mark}}) FROM {{.Mark}} WHERE NOT is_called
---
CREATE OR REPLACE FUNCTION {{.Function}}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $uid$
DECLARE
  mark bigint;
  lowest bigint;
BEGIN
  IF TG_LEVEL = 'ROW' THEN
    lowest := NEW.{{.Key}};
  ELSE
    lowest := (SELECT min({{.Key}}) FROM uid_rows);
  END IF;
  IF lowest IS NULL THEN
    RETURN NULL; -- the statement has inserted no row
  END IF;
  -- This fails while a reader waits for the first gate. Then the second is free.
  IF NOT pg_try_advisory_xact_lock_shared({{.Gate1}}) THEN
    PERFORM pg_advisory_xact_lock_shared({{.Gate2}});
  END IF;
  mark := pg_sequence_last_value({{text .Mark}}::regclass); -- after the gate, and without a snapshot
  IF mark IS NULL OR lowest < mark THEN
    RAISE EXCEPTION 'uid_follow: too late: the id % is below % at %', lowest, mark, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
      USING ERRCODE = 'UID01', HINT = '{{.Remedy}}';
  END IF;
  RETURN NULL;
END $uid$
---
DO $uid$
BEGIN
  PERFORM pg_advisory_xact_lock({{.InstallLock}}); -- one at a time, so that others do not wait for several
  IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = {{text .Table}}::regclass AND tgname = {{text .TriggerName}}) THEN
    RETURN;
  END IF;
  PERFORM set_config('lock_timeout', '{{.Patience}}ms', true); -- because writers queue up behind this; try again if it fails
  -- A trigger for each statement is faster, but does not fire for rows that are inserted into a partition directly.
  IF EXISTS (SELECT FROM pg_class WHERE oid = {{text .Table}}::regclass AND (relkind = 'p' OR relispartition)) THEN
    CREATE TRIGGER {{.Trigger}} AFTER INSERT ON {{.Table}}
    FOR EACH ROW EXECUTE FUNCTION {{.Function}}();
  ELSE
    CREATE TRIGGER {{.Trigger}} AFTER INSERT ON {{.Table}} REFERENCING NEW TABLE AS uid_rows
    FOR EACH STATEMENT EXECUTE FUNCTION {{.Function}}();
  END IF;
END $uid$
---
INSERT INTO {{.Marks}} ("TABLE_NAME", "KEY_COLUMN", "SLACK", "PUBLISHED", "TRIGGER_ID")
SELECT {{text .Name}}, {{text .KeyName}}, {{.Slack}}, 0, oid::text FROM pg_trigger
WHERE tgrelid = {{text .Table}}::regclass AND tgname = {{text .TriggerName}}
ON CONFLICT ("TABLE_NAME") DO UPDATE SET "KEY_COLUMN" = excluded."KEY_COLUMN",
  "TRIGGER_ID" = excluded."TRIGGER_ID", "SLACK" = excluded."SLACK"
