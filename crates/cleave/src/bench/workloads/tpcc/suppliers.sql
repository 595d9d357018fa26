DROP TABLE IF EXISTS supplier;
DROP TABLE IF EXISTS nation;
DROP TABLE IF EXISTS region;

CREATE TABLE region (
    r_regionkey integer PRIMARY KEY,
    r_name varchar(25) NOT NULL,
    r_comment varchar(152) NOT NULL
);

CREATE TABLE nation (
    n_nationkey integer PRIMARY KEY,
    n_name varchar(25) NOT NULL,
    n_regionkey integer NOT NULL,
    n_comment varchar(152) NOT NULL
);

CREATE TABLE supplier (
    su_suppkey integer PRIMARY KEY,
    su_name varchar(25) NOT NULL,
    su_address varchar(40) NOT NULL,
    su_nationkey integer NOT NULL,
    su_phone varchar(15) NOT NULL,
    su_acctbal decimal(12, 2) NOT NULL,
    su_comment varchar(101) NOT NULL
);
