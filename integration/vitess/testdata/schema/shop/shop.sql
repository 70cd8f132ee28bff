CREATE TABLE orders (id bigint PRIMARY KEY, customer varchar(40) NOT NULL, note varchar(40) NOT NULL);
CREATE TABLE items (id bigint PRIMARY KEY, order_id bigint NOT NULL, title varchar(40) NOT NULL, KEY (order_id));
CREATE TABLE stocks (id bigint PRIMARY KEY, tenant bigint NOT NULL, name varchar(40) NOT NULL, amount bigint NOT NULL, UNIQUE KEY (tenant, name));
CREATE TABLE sales (id bigint PRIMARY KEY, tenant bigint NOT NULL, name varchar(40) NOT NULL);
CREATE TABLE sales_id (id bigint PRIMARY KEY, keyspace_id varbinary(16));
CREATE TABLE customers (id bigint PRIMARY KEY, created_at datetime(3), updated_at datetime(3), deleted_at datetime(3), name varchar(40));
