{{- /* A locking read takes the gate until the transaction ends, and sees the latest mark. On MariaDB the mark is a
sequence, and the condition makes MariaDB read it after the gate. It is a single expression, because each further
statement of the trigger costs time for each row. */ -}}
{{- define "mark" -}}
(SELECT {{if .MariaDB}}(SELECT next_not_cached_value FROM {{.Mark}} WHERE g.MARK > 0){{else}}g.MARK{{end}}
    FROM {{.Gates}} g WHERE g.ID = IF(IS_FREE_LOCK({{.Lock}}), {{.Gate1}}, {{.Gate2}}) LOCK IN SHARE MODE)
{{- end -}}
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
CREATE TABLE IF NOT EXISTS {{.GatesTable}} (
  ID bigint NOT NULL PRIMARY KEY COMMENT 'a number, because the trigger finds a gate faster than by a name',
  TABLE_NAME varchar(128) NOT NULL,
  MARK bigint NOT NULL
) ENGINE=InnoDB
---
INSERT IGNORE INTO {{.GatesTable}} VALUES ({{.Gate1}}, {{text .Name}}, 1), ({{.Gate2}}, {{text .Name}}, 1)
---
{{- if .MariaDB}}
CREATE SEQUENCE IF NOT EXISTS {{.MarkSequence}} MINVALUE 1 NOCACHE ENGINE=InnoDB
---
{{- end}}
CREATE TRIGGER {{.Trigger}} AFTER INSERT ON {{.Table}} FOR EACH ROW
IF COALESCE(NEW.{{.Key}} < {{template "mark" .}}, TRUE) THEN
  BEGIN
    DECLARE message VARCHAR(128) DEFAULT CONCAT('uid_follow: too late: the id ', NEW.{{.Key}}, ' is below ',
      IFNULL({{template "mark" .}}, 'no mark'), ' at ', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000, '; {{.Remedy}}');
    SIGNAL SQLSTATE '45U01' SET MESSAGE_TEXT = message;
  END;
END IF
---
INSERT INTO {{.Marks}} (TABLE_NAME, KEY_COLUMN, SLACK, PUBLISHED, TRIGGER_ID)
SELECT {{text .Name}}, {{text .KeyName}}, {{.Slack}}, 0, CAST(UNIX_TIMESTAMP(CREATED) AS CHAR)
FROM information_schema.TRIGGERS
WHERE EVENT_OBJECT_SCHEMA = {{.Schema}} AND EVENT_OBJECT_TABLE = {{text .Bare}} AND TRIGGER_NAME = {{text .TriggerName}}
ON DUPLICATE KEY UPDATE TRIGGER_ID = VALUES(TRIGGER_ID), SLACK = VALUES(SLACK)
