-- Leaf's table on MySQL, MariaDB and compatible databases. Package segment creates it if it is missing.
CREATE TABLE IF NOT EXISTS `leaf_alloc` (
  `biz_tag` VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'whose ids these are',
  `max_id` BIGINT NOT NULL DEFAULT 1 COMMENT 'the first id that nobody has fetched yet',
  `step` INT NOT NULL COMMENT 'how many ids are fetched at once, at least',
  `description` VARCHAR(256) DEFAULT NULL,
  `update_time` TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  PRIMARY KEY (`biz_tag`)
) ENGINE=InnoDB;
