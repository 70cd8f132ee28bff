{{- /* A locking read takes the gate until the transaction ends, and sees the latest mark. The gate is chosen by a
statement of its own and not in the condition of the read, because a database may evaluate a condition twice, and finds
no gate if the closer has changed the choice in between. Each statement costs time for each row, so the mark is read
directly. It is read again for the message, and only that decides. */ -}}
{{- /* On MariaDB the mark is a sequence, and the condition makes MariaDB read it after the gate. */ -}}
{{- define "mark" -}}
{{if .MariaDB}}(SELECT next_not_cached_value FROM {{.Mark}} WHERE g.MARK > 0){{else}}g.MARK{{end}}
{{- end -}}
CREATE TABLE IF NOT EXISTS {{.Marks}} (
  TABLE_NAME varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
  KEY_COLUMN varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
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
  TABLE_NAME varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  MARK bigint NOT NULL
) ENGINE=InnoDB
---
INSERT IGNORE INTO {{.GatesTable}} VALUES {{range $i, $gate := .GateIDs}}{{if $i}}, {{end}}({{$gate}}, {{text $.Name}}, 1){{end}}
---
{{- if .MariaDB}}
CREATE SEQUENCE IF NOT EXISTS {{.MarkSequence}} MINVALUE 1 NOCACHE ENGINE=InnoDB
---
{{- end}}
CREATE TRIGGER {{.Trigger}} AFTER INSERT ON {{.Table}} FOR EACH ROW
{{- range $i, $gate := .GateIDs}}
{{if $i}}ELSE{{else}}IF IS_FREE_LOCK({{$.Lock}}) THEN{{end}}
  IF COALESCE(NEW.{{$.Key}} < (SELECT {{template "mark" $}} FROM {{$.Gates}} g WHERE g.ID = {{$gate}} LOCK IN SHARE MODE), TRUE) THEN
    BEGIN
      DECLARE below BIGINT DEFAULT (SELECT {{template "mark" $}} FROM {{$.Gates}} g WHERE g.ID = {{$gate}} LOCK IN SHARE MODE);
      DECLARE message VARCHAR(128) DEFAULT CONCAT('uid_follow: too late: the id ', NEW.{{$.Key}}, ' is below ',
        IFNULL(below, 'no mark'), ' at ', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000, '; {{$.Remedy}}');
      IF COALESCE(NEW.{{$.Key}} < below, TRUE) THEN
        SIGNAL SQLSTATE '45U01' SET MESSAGE_TEXT = message;
      END IF;
    END;
  END IF;
{{- end}}
END IF
---
INSERT INTO {{.Marks}} (TABLE_NAME, KEY_COLUMN, SLACK, PUBLISHED, TRIGGER_ID)
SELECT {{text .Name}}, {{text .KeyName}}, {{.Slack}}, 0, CAST(UNIX_TIMESTAMP(CREATED) AS CHAR)
FROM information_schema.TRIGGERS
WHERE EVENT_OBJECT_SCHEMA = {{.Schema}} AND EVENT_OBJECT_TABLE = {{text .Bare}} AND TRIGGER_NAME = {{text .TriggerName}}
ON DUPLICATE KEY UPDATE KEY_COLUMN = VALUES(KEY_COLUMN), TRIGGER_ID = VALUES(TRIGGER_ID), SLACK = VALUES(SLACK)
