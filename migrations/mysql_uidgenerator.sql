-- Extends the WORKER_NODE table that UidGenerator's script made, on MySQL and
-- MariaDB. uidplugin runs this by itself unless it is told WithoutMigration().
--
-- Nothing is changed or dropped, and every new column has a default, so that
-- UidGenerator's INSERT goes on working.
ALTER TABLE `WORKER_NODE`
  ADD COLUMN `TABLE_NAME` VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'ids of this worker are keys of this table; never changes',
  ADD COLUMN `LAYOUT` VARCHAR(64) NOT NULL DEFAULT '' COMMENT 'layout of the ids of this worker; never changes',
  ADD COLUMN `REUSABLE` INT NOT NULL DEFAULT 0 COMMENT '1 if another process may take the worker id over; never changes',
  ADD COLUMN `START_SECOND` BIGINT NOT NULL DEFAULT 0 COMMENT 'no id of this table bears this worker with this tick or an earlier one',
  ADD COLUMN `HELD_SECOND` BIGINT NOT NULL DEFAULT 0 COMMENT 'no id up to this tick is of the holder named here, but of an earlier one',
  ADD COLUMN `FENCE` BIGINT NOT NULL DEFAULT 0 COMMENT 'last tick that anybody may stamp with this worker id; never lowered',
  ADD COLUMN `HOLDER` VARCHAR(36) NOT NULL DEFAULT '' COMMENT 'process that holds the worker id; empty if none does',
  ADD KEY `IDX_WORKER_NODE_TABLE` (`TABLE_NAME`, `FENCE`);
