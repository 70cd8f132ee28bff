-- The table of package segment on PostgreSQL: Leaf's. Package segment runs this by
-- itself if there is none. The columns are explained in mysql.sql.
CREATE TABLE IF NOT EXISTS "leaf_alloc" (
  "biz_tag" VARCHAR(128) NOT NULL DEFAULT '',
  "max_id" BIGINT NOT NULL DEFAULT 1,
  "step" INT NOT NULL,
  "description" VARCHAR(256) DEFAULT NULL,
  "update_time" TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY ("biz_tag")
);
