-- Extends UidGenerator's WORKER_NODE on MySQL and MariaDB. uidplugin runs this unless WithoutMigration() is set.
--
-- Existing columns do not change, and each new column has a default, so UidGenerator's INSERT still works.
ALTER TABLE `WORKER_NODE`
  ADD COLUMN `SLOT` BIGINT NULL COMMENT 'the slot that owns the worker id; NULL in a row of UidGenerator',
  ADD COLUMN `DATABASE_NAME` VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'where the table is; empty for the database of this table',
  ADD COLUMN `TABLE_NAME` VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'ids with this worker id are keys of this table; * for all tables, empty for none; never changes once set',
  ADD COLUMN `LAYOUT` VARCHAR(64) NOT NULL DEFAULT '' COMMENT 'layout of these ids; never changes',
  ADD COLUMN `START_TICK` BIGINT NOT NULL DEFAULT 0 COMMENT 'no id of the table has this worker id and this tick or an earlier one',
  ADD KEY `IDX_WORKER_NODE_SLOT` (`SLOT`);
