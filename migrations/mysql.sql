-- The tables of uidplugin on MySQL, MariaDB and compatible databases. uidplugin creates them unless WithoutMigration() is
-- set.
--
-- The first seven columns of WORKER_NODE are UidGenerator's. If UidGenerator created it, run
-- mysql_uidgenerator.sql instead of the first statement.
CREATE TABLE IF NOT EXISTS `WORKER_NODE` (
  `ID` BIGINT NOT NULL COMMENT 'the worker id',
  `HOST_NAME` VARCHAR(64) NOT NULL COMMENT 'host of the process that inserted the row, for people',
  `PORT` VARCHAR(64) NOT NULL COMMENT 'its port or process id, for people',
  `TYPE` INT NOT NULL COMMENT '1 CONTAINER, 2 ACTUAL',
  `LAUNCH_DATE` DATE NOT NULL,
  `MODIFIED` TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  `CREATED` TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  `SLOT` BIGINT NULL COMMENT 'the slot that owns the worker id; NULL in a row of UidGenerator',
  `DATABASE_NAME` VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'where the table is; empty for the database of this table',
  `TABLE_NAME` VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'ids with this worker id are keys of this table; * for all tables, empty for none; never changes once set',
  `LAYOUT` VARCHAR(64) NOT NULL DEFAULT '' COMMENT 'layout of these ids; never changes',
  `START_TICK` BIGINT NOT NULL DEFAULT 0 COMMENT 'no id of the table has this worker id and this tick or an earlier one',
  PRIMARY KEY (`ID`),
  KEY `IDX_WORKER_NODE_SLOT` (`SLOT`)
);

CREATE TABLE IF NOT EXISTS `WORKER_SLOT` (
  `ID` BIGINT NOT NULL,
  `LAYOUT` VARCHAR(64) NOT NULL COMMENT 'layout of the ids; never changes',
  `REUSABLE` INT NOT NULL COMMENT '0: disposable, never reclaimed',
  `FENCE` BIGINT NOT NULL COMMENT 'last tick that anybody may ever have stamped with a worker id of the slot; never lowered',
  `VERSION` BIGINT NOT NULL COMMENT 'changes with every statement',
  `HOLDER` VARCHAR(36) NOT NULL COMMENT 'random token of the process that holds the slot; empty: free',
  `SEEN_TICK` BIGINT NOT NULL COMMENT 'clock of the holder at its last statement',
  `APPLICATION` VARCHAR(64) NOT NULL COMMENT 'last holder',
  `HOST_NAME` VARCHAR(64) NOT NULL COMMENT 'last holder',
  `PORT` VARCHAR(64) NOT NULL COMMENT 'last holder',
  `MODIFIED` TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  `REGION` BIGINT NOT NULL DEFAULT 0 COMMENT 'only processes of this region hold the slot',
  PRIMARY KEY (`ID`)
);

CREATE TABLE IF NOT EXISTS `WORKER_SESSION` (
  `SLOT` BIGINT NOT NULL,
  `START_TICK` BIGINT NOT NULL COMMENT 'last tick before the session',
  `BEFORE_TICK` BIGINT NOT NULL COMMENT 'no earlier session of the slot stamped a later tick',
  `APPLICATION` VARCHAR(64) NOT NULL COMMENT 'the process that held the slot in this session',
  `HOST_NAME` VARCHAR(64) NOT NULL,
  `PORT` VARCHAR(64) NOT NULL,
  `TYPE` INT NOT NULL COMMENT '1 CONTAINER, 2 ACTUAL',
  `LAUNCHED` DATETIME(3) NOT NULL COMMENT 'start of the process, in UTC',
  `HOLDER` VARCHAR(36) NOT NULL,
  PRIMARY KEY (`SLOT`, `START_TICK`)
);

CREATE TABLE IF NOT EXISTS `WORKER_REGISTRY` (
  `NAME` VARCHAR(64) NOT NULL COMMENT 'default',
  `ID_SPACE` VARCHAR(36) NOT NULL COMMENT 'random name of the id space',
  `LAYOUT` VARCHAR(64) NOT NULL COMMENT 'layout of all ids: widths of sign, time, worker id, sequence / tick @ epoch',
  `LEAD_TICKS` BIGINT NOT NULL COMMENT 'how far ahead of the clock a FENCE is set',
  `NEXT_ID` BIGINT NOT NULL COMMENT 'next worker id that was never given out',
  `NEXT_SLOT` BIGINT NOT NULL COMMENT 'next slot that was never given out',
  `FLOOR_TICK` BIGINT NOT NULL DEFAULT 0 COMMENT 'set by an operator after a restore: no tick up to this one is stamped',
  `SCHEMA_VERSION` BIGINT NOT NULL DEFAULT 0 COMMENT 'the release that last changed the tables: major * 1000 + minor',
  `STRIDE` BIGINT NOT NULL DEFAULT 1 COMMENT 'the registry gives out every STRIDE-th worker id and slot',
  `REMAINDER` BIGINT NOT NULL DEFAULT 0 COMMENT 'the region: a worker id or slot divided by STRIDE leaves this',
  `FIRST_ID` BIGINT NOT NULL DEFAULT 1 COMMENT 'worker ids below it are given by hand (WithWorkerID), never by the registry',
  PRIMARY KEY (`NAME`)
);
