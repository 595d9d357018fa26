-- What the clients look at: see clients.py.
CREATE TABLE customers (id integer PRIMARY KEY, email varchar(60) NOT NULL UNIQUE, born date, note text DEFAULT 'none');
CREATE TABLE visits (customer integer REFERENCES customers ON DELETE CASCADE, day date);
CREATE TABLE orders (id bigint PRIMARY KEY, customer integer NOT NULL, total numeric(10, 2),
    placed timestamp with time zone);
CREATE INDEX orders_customer ON orders (customer, placed DESC);
INSERT INTO customers SELECT v, 'c' || v || '@example.org', date '2000-01-01', 'n' FROM generate_series(1, 100) s(v);
INSERT INTO orders SELECT v, v % 100 + 1, 1.25, timestamp with time zone '2024-01-02 03:04:05+00'
    FROM generate_series(1, 1000) s(v);
-- For the built-in scripts of pgbench, smaller than those that it makes.
CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler char(88));
CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84));
INSERT INTO pgbench_branches VALUES (1, 0, '');
INSERT INTO pgbench_accounts SELECT v, 1, 0, '' FROM generate_series(1, 100000) s(v);
CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84));
CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
INSERT INTO pgbench_tellers SELECT v, 1, 0, '' FROM generate_series(1, 10) s(v);
