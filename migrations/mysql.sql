-- The tables of uidplugin on MySQL, MariaDB, TiDB and others that speak their
-- dialect. uidplugin runs this by itself unless it is told WithoutMigration().
--
-- WORKER_NODE is UidGenerator's table (the first seven columns). If UidGenerator
-- made it, run mysql_uidgenerator.sql and, from here, only the second statement.
CREATE TABLE IF NOT EXISTS `WORKER_NODE` (
  `ID` BIGINT NOT NULL COMMENT 'the worker id',
  `HOST_NAME` VARCHAR(64) NOT NULL COMMENT 'host of the process, for people',
  `PORT` VARCHAR(64) NOT NULL COMMENT 'port or process id, for people',
  `TYPE` INT NOT NULL COMMENT '1 CONTAINER, 2 ACTUAL',
  `LAUNCH_DATE` DATE NOT NULL,
  `MODIFIED` TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  `CREATED` TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  `TABLE_NAME` VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'ids of this worker are keys of this table; never changes',
  `LAYOUT` VARCHAR(64) NOT NULL DEFAULT '' COMMENT 'layout of the ids of this worker; never changes',
  `REUSABLE` INT NOT NULL DEFAULT 0 COMMENT '1 if another process may take the worker id over; never changes',
  `START_SECOND` BIGINT NOT NULL DEFAULT 0 COMMENT 'no id of this table bears this worker with this tick or an earlier one',
  `HELD_SECOND` BIGINT NOT NULL DEFAULT 0 COMMENT 'no id up to this tick is of the holder named here, but of an earlier one',
  `FENCE` BIGINT NOT NULL DEFAULT 0 COMMENT 'last tick that anybody may stamp with this worker id; never lowered',
  `HOLDER` VARCHAR(36) NOT NULL DEFAULT '' COMMENT 'process that holds the worker id; empty if none does',
  PRIMARY KEY (`ID`),
  KEY `IDX_WORKER_NODE_TABLE` (`TABLE_NAME`, `FENCE`)
);

CREATE TABLE IF NOT EXISTS `WORKER_REGISTRY` (
  `NAME` VARCHAR(64) NOT NULL COMMENT 'default',
  `LAYOUT` VARCHAR(64) NOT NULL COMMENT 'layout of all ids: widths of sign, time, worker id, sequence / tick @ epoch',
  `NEXT_ID` BIGINT NOT NULL COMMENT 'next worker id that nobody ever had',
  `FLOOR_SECOND` BIGINT NOT NULL DEFAULT 0 COMMENT 'set by an operator after a restore: no tick up to this one is stamped',
  PRIMARY KEY (`NAME`)
);
