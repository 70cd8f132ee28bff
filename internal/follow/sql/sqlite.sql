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
CREATE TABLE IF NOT EXISTS {{.GatesTable}} ("TABLE_NAME" varchar(128) NOT NULL PRIMARY KEY, "MARK" bigint NOT NULL)
---
INSERT OR IGNORE INTO {{.GatesTable}} VALUES ({{text .Name}}, 1)
---
CREATE TRIGGER {{.Trigger}} AFTER INSERT ON {{.Table}}
WHEN NEW.{{.Key}} < coalesce((SELECT "MARK" FROM {{.Gates}} WHERE "TABLE_NAME" = {{text .Name}}), 9223372036854775807)
BEGIN
  SELECT RAISE(ABORT, {{text .TooLate}});
END
---
INSERT INTO {{.Marks}} ("TABLE_NAME", "KEY_COLUMN", "SLACK", "PUBLISHED", "TRIGGER_ID")
SELECT {{text .Name}}, {{text .KeyName}}, {{.Slack}}, 0, name || ' ' || sql FROM sqlite_schema
WHERE type = 'trigger' AND name = {{text .TriggerName}}
ON CONFLICT ("TABLE_NAME") DO UPDATE SET "KEY_COLUMN" = excluded."KEY_COLUMN",
  "TRIGGER_ID" = excluded."TRIGGER_ID", "SLACK" = excluded."SLACK"
