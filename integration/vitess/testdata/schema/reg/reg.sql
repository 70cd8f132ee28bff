CREATE TABLE reg_exists (id bigint PRIMARY KEY);
