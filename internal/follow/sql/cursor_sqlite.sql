CREATE TABLE IF NOT EXISTS {{.Cursors}} (
  "CONSUMER" varchar(128) NOT NULL,
  "SPACE" varchar(128) NOT NULL, -- database of the followed table, or empty for this one
  "TABLE_NAME" varchar(128) NOT NULL,
  "LAST_ID" bigint NOT NULL, -- rows up to it are handled
  "MARK" bigint NOT NULL DEFAULT 0, -- of the followed table when rows were last read, if that is in another database; -m to go back to m
  "PAUSED" int NOT NULL DEFAULT 0,
  "CONDITIONS" varchar(64) NOT NULL DEFAULT '',
  "HOLDER" varchar(64) NOT NULL DEFAULT '',
  "HOLDER_UNTIL" bigint NOT NULL DEFAULT 0, -- in milliseconds since 1970, as RETRY_AT and STUCK_SINCE
  "ATTEMPTS" int NOT NULL DEFAULT 0,
  "RETRY_AT" bigint NOT NULL DEFAULT 0,
  "STUCK_ID" bigint NOT NULL DEFAULT 0, -- the row that fails
  "STUCK_SINCE" bigint NOT NULL DEFAULT 0,
  "ERROR" varchar(255) NOT NULL DEFAULT '',
  PRIMARY KEY ("CONSUMER", "SPACE", "TABLE_NAME")
)
