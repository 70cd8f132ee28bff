CREATE TABLE IF NOT EXISTS {{.Marks}} (
  TABLE_NAME varchar(128) NOT NULL PRIMARY KEY,
  KEY_COLUMN varchar(128) NOT NULL,
  SLACK bigint NOT NULL COMMENT 'milliseconds',
  PUBLISHED bigint NOT NULL,
  TRIGGER_ID varchar(64) NOT NULL,
  RECENT varchar(1000) NOT NULL DEFAULT '' COMMENT 'marks that were published before',
  CLOSER varchar(64) NOT NULL DEFAULT '',
  CLOSER_UNTIL bigint NOT NULL DEFAULT 0
) ENGINE=InnoDB
---
CREATE TABLE IF NOT EXISTS {{.Gates}} (
  TABLE_NAME varchar(128) NOT NULL,
  GATE tinyint NOT NULL,
  MARK bigint NOT NULL,
  PRIMARY KEY (TABLE_NAME, GATE)
) ENGINE=InnoDB
---
INSERT IGNORE INTO {{.Gates}} VALUES ({{text .Name}}, 1, 1), ({{text .Name}}, 2, 1)
---
{{- if .MariaDB}}
CREATE SEQUENCE IF NOT EXISTS {{.Mark}} MINVALUE 1 NOCACHE ENGINE=InnoDB
---
{{- end}}
CREATE TRIGGER {{.Trigger}} AFTER INSERT ON {{.Table}} FOR EACH ROW
BEGIN
  DECLARE gate TINYINT DEFAULT IF(IS_FREE_LOCK({{text .Lock}}), 1, 2);
  DECLARE lowest BIGINT;
  DECLARE message VARCHAR(128);
  -- A locking read returns the latest value, and keeps the gate until the transaction ends.
  SELECT g.{{if .MariaDB}}GATE{{else}}MARK{{end}} INTO lowest FROM {{.Gates}} g
  WHERE g.TABLE_NAME = {{text .Name}} AND g.GATE = gate LOCK IN SHARE MODE;
  {{- if .MariaDB}}
  IF lowest IS NOT NULL THEN
    SELECT next_not_cached_value INTO lowest FROM {{.Mark}}; -- after the gate, and without a snapshot
  END IF;
  {{- end}}
  IF lowest IS NULL OR NEW.{{.Key}} < lowest THEN
    SET message = CONCAT('uid_follow: too late: the id ', NEW.{{.Key}}, ' is below ', IFNULL(lowest, 'no mark'), ' at ',
      FLOOR(UNIX_TIMESTAMP(SYSDATE(3)) * 1000), '; {{.Remedy}}');
    SIGNAL SQLSTATE '45U01' SET MESSAGE_TEXT = message;
  END IF;
END
---
INSERT INTO {{.Marks}} (TABLE_NAME, KEY_COLUMN, SLACK, PUBLISHED, TRIGGER_ID)
SELECT {{text .Name}}, {{text .KeyName}}, {{.Slack}}, 0, CAST(UNIX_TIMESTAMP(CREATED) AS CHAR)
FROM information_schema.TRIGGERS
WHERE EVENT_OBJECT_SCHEMA = {{.Schema}} AND EVENT_OBJECT_TABLE = {{text .Bare}} AND TRIGGER_NAME = {{text .TriggerName}}
ON DUPLICATE KEY UPDATE TRIGGER_ID = VALUES(TRIGGER_ID), SLACK = VALUES(SLACK)
