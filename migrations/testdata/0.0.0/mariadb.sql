CREATE TABLE `WORKER_NODE` (
  `ID` bigint(20) NOT NULL COMMENT 'the worker id',
  `HOST_NAME` varchar(64) NOT NULL COMMENT 'host of the process that inserted the row, for people',
  `PORT` varchar(64) NOT NULL COMMENT 'its port or process id, for people',
  `TYPE` int(11) NOT NULL COMMENT '1 CONTAINER, 2 ACTUAL',
  `LAUNCH_DATE` date NOT NULL,
  `MODIFIED` timestamp NOT NULL DEFAULT current_timestamp(),
  `CREATED` timestamp NOT NULL DEFAULT current_timestamp(),
  `SLOT` bigint(20) DEFAULT NULL COMMENT 'the slot that owns the worker id; NULL in a row of UidGenerator',
  `DATABASE_NAME` varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'where the table is; empty for the database of this table',
  `TABLE_NAME` varchar(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'ids with this worker id are keys of this table; * for all tables, empty for a spare; never changes once set',
  `LAYOUT` varchar(64) NOT NULL DEFAULT '' COMMENT 'layout of these ids; never changes',
  `START_TICK` bigint(20) NOT NULL DEFAULT 0 COMMENT 'no id of the table has this worker id and this tick or an earlier one',
  PRIMARY KEY (`ID`),
  KEY `IDX_WORKER_NODE_SLOT` (`SLOT`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;

INSERT INTO `WORKER_NODE` VALUES (1, 'web-1', '8080', 1, '2026-11-24', '2026-11-24 04:21:03.000', '2026-11-24 04:21:03.000', 1, '', 't1', '1-41-18-4/1ms@1514764800', 280729263174);
INSERT INTO `WORKER_NODE` VALUES (2, 'web-1', '8080', 1, '2026-11-24', '2026-11-24 04:21:03.000', '2026-11-24 04:21:03.000', 1, '', 't2', '1-41-18-4/1ms@1514764800', 280729263174);
INSERT INTO `WORKER_NODE` VALUES (3, 'web-1', '8080', 1, '2026-11-24', '2026-11-24 04:21:03.000', '2026-11-24 04:21:03.000', 1, '', '', '1-41-18-4/1ms@1514764800', 280729263174);
INSERT INTO `WORKER_NODE` VALUES (4, 'web-1', '8080', 1, '2026-11-24', '2026-11-24 04:21:03.000', '2026-11-24 04:21:03.000', 1, '', '', '1-41-18-4/1ms@1514764800', 280729263174);
INSERT INTO `WORKER_NODE` VALUES (5, 'web-2', '8080', 1, '2026-11-24', '2026-11-24 04:21:03.000', '2026-11-24 04:21:03.000', 2, '', 't1', '1-41-18-4/1ms@1514764800', 280729263214);
INSERT INTO `WORKER_NODE` VALUES (6, 'web-2', '8080', 1, '2026-11-24', '2026-11-24 04:21:03.000', '2026-11-24 04:21:03.000', 2, '', 't2', '1-41-18-4/1ms@1514764800', 280729263214);
INSERT INTO `WORKER_NODE` VALUES (7, 'web-2', '8080', 1, '2026-11-24', '2026-11-24 04:21:03.000', '2026-11-24 04:21:03.000', 2, '', '', '1-41-18-4/1ms@1514764800', 280729263214);
INSERT INTO `WORKER_NODE` VALUES (8, 'web-2', '8080', 1, '2026-11-24', '2026-11-24 04:21:03.000', '2026-11-24 04:21:03.000', 2, '', '', '1-41-18-4/1ms@1514764800', 280729263214);
CREATE TABLE `WORKER_SLOT` (
  `ID` bigint(20) NOT NULL,
  `LAYOUT` varchar(64) NOT NULL COMMENT 'layout of the ids; never changes',
  `REUSABLE` int(11) NOT NULL COMMENT '0: disposable, never reclaimed',
  `FENCE` bigint(20) NOT NULL COMMENT 'last tick that anybody may ever have stamped with a worker id of the slot; never lowered',
  `VERSION` bigint(20) NOT NULL COMMENT 'changes with every statement',
  `HOLDER` varchar(36) NOT NULL COMMENT 'random token of the process that holds the slot; empty: free',
  `SEEN_TICK` bigint(20) NOT NULL COMMENT 'clock of the holder at its last statement',
  `APPLICATION` varchar(64) NOT NULL COMMENT 'last holder',
  `HOST_NAME` varchar(64) NOT NULL COMMENT 'last holder',
  `PORT` varchar(64) NOT NULL COMMENT 'last holder',
  `MODIFIED` timestamp NOT NULL DEFAULT current_timestamp(),
  PRIMARY KEY (`ID`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;

INSERT INTO `WORKER_SLOT` VALUES (1, '1-41-18-4/1ms@1514764800', 1, 280729273170, 15, 'CQGHCSY6WDFQGU55E5NYCPUSRZ', 280729272170, 'shop', 'web-3', '8080', '2026-11-24 04:21:12.000');
INSERT INTO `WORKER_SLOT` VALUES (2, '1-41-18-4/1ms@1514764800', 1, 280729273158, 30, '2ZCY53IBJ4EYEJ55FQ6WCEARB7', 280729272158, 'shop', 'web-2', '8080', '2026-11-24 04:21:12.000');
CREATE TABLE `WORKER_SESSION` (
  `SLOT` bigint(20) NOT NULL,
  `START_TICK` bigint(20) NOT NULL COMMENT 'last tick before the session',
  `BEFORE_TICK` bigint(20) NOT NULL COMMENT 'no earlier session of the slot stamped a later tick',
  `APPLICATION` varchar(64) NOT NULL COMMENT 'the process that held the slot in this session',
  `HOST_NAME` varchar(64) NOT NULL,
  `PORT` varchar(64) NOT NULL,
  `TYPE` int(11) NOT NULL COMMENT '1 CONTAINER, 2 ACTUAL',
  `LAUNCHED` datetime(3) NOT NULL COMMENT 'start of the process, in UTC',
  `HOLDER` varchar(36) NOT NULL,
  PRIMARY KEY (`SLOT`,`START_TICK`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;

INSERT INTO `WORKER_SESSION` VALUES (1, 280729263172, 0, 'shop', 'web-1', '8080', 1, '2026-11-24 04:21:03.171', 'G4DZMD26ZAGGLINNZ4VYTXTO3K');
INSERT INTO `WORKER_SESSION` VALUES (1, 280729266299, 280729264175, 'shop', 'web-1', '8080', 1, '2026-11-24 04:21:06.296', 'EVGQQHGPT3WYSBHHU7WWVLCECP');
INSERT INTO `WORKER_SESSION` VALUES (1, 280729269352, 280729267297, 'shop', 'web-3', '8080', 1, '2026-11-24 04:21:09.351', 'CQGHCSY6WDFQGU55E5NYCPUSRZ');
INSERT INTO `WORKER_SESSION` VALUES (2, 280729263209, 0, 'shop', 'web-2', '8080', 1, '2026-11-24 04:21:03.208', '2ZCY53IBJ4EYEJ55FQ6WCEARB7');
CREATE TABLE `WORKER_REGISTRY` (
  `NAME` varchar(64) NOT NULL COMMENT 'default',
  `ID_SPACE` varchar(36) NOT NULL COMMENT 'random name of the id space',
  `LAYOUT` varchar(64) NOT NULL COMMENT 'layout of all ids: widths of sign, time, worker id, sequence / tick @ epoch',
  `LEAD_TICKS` bigint(20) NOT NULL COMMENT 'how far ahead of the clock a FENCE is set',
  `NEXT_ID` bigint(20) NOT NULL COMMENT 'next worker id that was never given out',
  `NEXT_SLOT` bigint(20) NOT NULL COMMENT 'next slot that was never given out',
  `FLOOR_TICK` bigint(20) NOT NULL DEFAULT 0 COMMENT 'set by an operator after a restore: no tick up to this one is stamped',
  PRIMARY KEY (`NAME`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;

INSERT INTO `WORKER_REGISTRY` VALUES ('default', 's5m3fogmyp7oa', '1-41-18-4/1ms@1514764800', 1000, 9, 3, 0);
