CREATE TABLE `WORKER_NODE` (
  `ID` bigint NOT NULL COMMENT 'the worker id',
  `HOST_NAME` varchar(64) NOT NULL COMMENT 'host of the process that inserted the row, for people',
  `PORT` varchar(64) NOT NULL COMMENT 'its port or process id, for people',
  `TYPE` int NOT NULL COMMENT '1 CONTAINER, 2 ACTUAL',
  `LAUNCH_DATE` date NOT NULL,
  `MODIFIED` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
  `CREATED` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
  `SLOT` bigint DEFAULT NULL COMMENT 'the slot that owns the worker id; NULL in a row of UidGenerator',
  `DATABASE_NAME` varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'where the table is; empty for the database of this table',
  `TABLE_NAME` varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'ids with this worker id are keys of this table; * for all tables, empty for none; never changes once set',
  `LAYOUT` varchar(64) NOT NULL DEFAULT '' COMMENT 'layout of these ids; never changes',
  `START_TICK` bigint NOT NULL DEFAULT '0' COMMENT 'no id of the table has this worker id and this tick or an earlier one',
  PRIMARY KEY (`ID`),
  KEY `IDX_WORKER_NODE_SLOT` (`SLOT`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

INSERT INTO `WORKER_NODE` VALUES (1025, 'web-1', '8080', 1, '2026-11-27', '2026-11-27 04:26:50.000', '2026-11-27 04:26:50.000', 1, '', 't1', '1-41-18-4/1ms@1514764800', 280988810904);
INSERT INTO `WORKER_NODE` VALUES (1026, 'web-1', '8080', 1, '2026-11-27', '2026-11-27 04:26:50.000', '2026-11-27 04:26:50.000', 1, '', 't2', '1-41-18-4/1ms@1514764800', 280988810904);
INSERT INTO `WORKER_NODE` VALUES (1027, 'web-2', '8080', 1, '2026-11-27', '2026-11-27 04:26:50.000', '2026-11-27 04:26:50.000', 2, '', 't1', '1-41-18-4/1ms@1514764800', 280988810967);
INSERT INTO `WORKER_NODE` VALUES (1028, 'web-2', '8080', 1, '2026-11-27', '2026-11-27 04:26:50.000', '2026-11-27 04:26:50.000', 2, '', 't2', '1-41-18-4/1ms@1514764800', 280988810967);
CREATE TABLE `WORKER_SLOT` (
  `ID` bigint NOT NULL,
  `LAYOUT` varchar(64) NOT NULL COMMENT 'layout of the ids; never changes',
  `REUSABLE` int NOT NULL COMMENT '0: disposable, never reclaimed',
  `FENCE` bigint NOT NULL COMMENT 'last tick that anybody may ever have stamped with a worker id of the slot; never lowered',
  `VERSION` bigint NOT NULL COMMENT 'changes with every statement',
  `HOLDER` varchar(36) NOT NULL COMMENT 'random token of the process that holds the slot; empty: free',
  `SEEN_TICK` bigint NOT NULL COMMENT 'clock of the holder at its last statement',
  `APPLICATION` varchar(64) NOT NULL COMMENT 'last holder',
  `HOST_NAME` varchar(64) NOT NULL COMMENT 'last holder',
  `PORT` varchar(64) NOT NULL COMMENT 'last holder',
  `MODIFIED` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
  `REGION` bigint NOT NULL DEFAULT '0' COMMENT 'only processes of this region hold the slot',
  PRIMARY KEY (`ID`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

INSERT INTO `WORKER_SLOT` VALUES (1, '1-41-18-4/1ms@1514764800', 1, 280988820887, 15, 'H3Y2ID3K7GXHIH4LSUYN4XGIBS', 280988819887, 'shop', 'web-3', '8080', '2026-11-27 04:26:59.000', 0);
INSERT INTO `WORKER_SLOT` VALUES (2, '1-41-18-4/1ms@1514764800', 1, 280988820908, 30, 'GD3ZE43FNEF6DDSFRZFO3SAYRD', 280988819908, 'shop', 'web-2', '8080', '2026-11-27 04:26:59.000', 0);
CREATE TABLE `WORKER_SESSION` (
  `SLOT` bigint NOT NULL,
  `START_TICK` bigint NOT NULL COMMENT 'last tick before the session',
  `BEFORE_TICK` bigint NOT NULL COMMENT 'no earlier session of the slot stamped a later tick',
  `APPLICATION` varchar(64) NOT NULL COMMENT 'the process that held the slot in this session',
  `HOST_NAME` varchar(64) NOT NULL,
  `PORT` varchar(64) NOT NULL,
  `TYPE` int NOT NULL COMMENT '1 CONTAINER, 2 ACTUAL',
  `LAUNCHED` datetime(3) NOT NULL COMMENT 'start of the process, in UTC',
  `HOLDER` varchar(36) NOT NULL,
  PRIMARY KEY (`SLOT`,`START_TICK`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

INSERT INTO `WORKER_SESSION` VALUES (1, 280988810900, 0, 'shop', 'web-1', '8080', 1, '2026-11-27 04:26:50.882', 'RGL2MUYVC7GMQXDWVUUXZXDGQE');
INSERT INTO `WORKER_SESSION` VALUES (1, 280988813987, 280988811904, 'shop', 'web-1', '8080', 1, '2026-11-27 04:26:53.985', 'Q26XEGLHZ3CCDHQOJ7ZXSK2X3E');
INSERT INTO `WORKER_SESSION` VALUES (1, 280988817026, 280988814987, 'shop', 'web-3', '8080', 1, '2026-11-27 04:26:57.020', 'H3Y2ID3K7GXHIH4LSUYN4XGIBS');
INSERT INTO `WORKER_SESSION` VALUES (2, 280988810961, 0, 'shop', 'web-2', '8080', 1, '2026-11-27 04:26:50.943', 'GD3ZE43FNEF6DDSFRZFO3SAYRD');
CREATE TABLE `WORKER_REGISTRY` (
  `NAME` varchar(64) NOT NULL COMMENT 'default',
  `ID_SPACE` varchar(36) NOT NULL COMMENT 'random name of the id space',
  `LAYOUT` varchar(64) NOT NULL COMMENT 'layout of all ids: widths of sign, time, worker id, sequence / tick @ epoch',
  `LEAD_TICKS` bigint NOT NULL COMMENT 'how far ahead of the clock a FENCE is set',
  `NEXT_ID` bigint NOT NULL COMMENT 'next worker id that was never given out',
  `NEXT_SLOT` bigint NOT NULL COMMENT 'next slot that was never given out',
  `FLOOR_TICK` bigint NOT NULL DEFAULT '0' COMMENT 'set by an operator after a restore: no tick up to this one is stamped',
  `SCHEMA_VERSION` bigint NOT NULL DEFAULT '0' COMMENT 'the release that last changed the tables: major * 1000 + minor',
  `STRIDE` bigint NOT NULL DEFAULT '1' COMMENT 'the registry gives out every STRIDE-th worker id and slot',
  `REMAINDER` bigint NOT NULL DEFAULT '0' COMMENT 'the region: a worker id or slot divided by STRIDE leaves this',
  `FIRST_ID` bigint NOT NULL DEFAULT '1' COMMENT 'worker ids below it are given by hand (WithWorkerID), never by the registry',
  PRIMARY KEY (`NAME`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci;

INSERT INTO `WORKER_REGISTRY` VALUES ('default', '26t5be6r5sdbp', '1-41-18-4/1ms@1514764800', 1000, 1029, 3, 0, 1, 1, 0, 1025);
