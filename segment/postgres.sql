-- Leaf's table on PostgreSQL. Package segment creates it if it is missing; mysql.sql explains the columns.
CREATE TABLE IF NOT EXISTS "leaf_alloc" (
  "biz_tag" VARCHAR(128) NOT NULL DEFAULT '',
  "max_id" BIGINT NOT NULL DEFAULT 1,
  "step" INT NOT NULL,
  "description" VARCHAR(256) DEFAULT NULL,
  "update_time" TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY ("biz_tag")
);
