CREATE TABLE IF NOT EXISTS {{.Cursors}} (
  CONSUMER varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  SPACE varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'database of the followed table, empty for this one',
  TABLE_NAME varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  LAST_ID bigint NOT NULL COMMENT 'rows up to it are handled',
  MARK bigint NOT NULL DEFAULT 0 COMMENT 'of the followed table when rows were last read, if that is in another database; -m to go back to m',
  PAUSED int NOT NULL DEFAULT 0,
  CONDITIONS varchar(64) NOT NULL DEFAULT '',
  HOLDER varchar(64) NOT NULL DEFAULT '',
  HOLDER_UNTIL bigint NOT NULL DEFAULT 0 COMMENT 'milliseconds since 1970, as RETRY_AT and STUCK_SINCE',
  ATTEMPTS int NOT NULL DEFAULT 0,
  RETRY_AT bigint NOT NULL DEFAULT 0,
  STUCK_ID bigint NOT NULL DEFAULT 0 COMMENT 'the row that fails',
  STUCK_SINCE bigint NOT NULL DEFAULT 0,
  ERROR varchar(255) NOT NULL DEFAULT '',
  PRIMARY KEY (CONSUMER, SPACE, TABLE_NAME)
) ENGINE=InnoDB
