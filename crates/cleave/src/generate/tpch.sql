CREATE TABLE region (
    r_regionkey bigint PRIMARY KEY,
    r_name varchar(25) NOT NULL,
    r_comment varchar(152) NOT NULL
);

CREATE TABLE nation (
    n_nationkey bigint PRIMARY KEY,
    n_name varchar(25) NOT NULL,
    n_regionkey bigint NOT NULL,
    n_comment varchar(152) NOT NULL
);

CREATE TABLE supplier (
    s_suppkey bigint PRIMARY KEY,
    s_name varchar(25) NOT NULL,
    s_address varchar(40) NOT NULL,
    s_nationkey bigint NOT NULL,
    s_phone varchar(15) NOT NULL,
    s_acctbal decimal(15, 2) NOT NULL,
    s_comment varchar(101) NOT NULL
);

CREATE TABLE part (
    p_partkey bigint PRIMARY KEY,
    p_name varchar(55) NOT NULL,
    p_mfgr varchar(25) NOT NULL,
    p_brand varchar(10) NOT NULL,
    p_type varchar(25) NOT NULL,
    p_size integer NOT NULL,
    p_container varchar(10) NOT NULL,
    p_retailprice decimal(15, 2) NOT NULL,
    p_comment varchar(23) NOT NULL
);

CREATE TABLE partsupp (
    ps_partkey bigint NOT NULL,
    ps_suppkey bigint NOT NULL,
    ps_availqty integer NOT NULL,
    ps_supplycost decimal(15, 2) NOT NULL,
    ps_comment varchar(199) NOT NULL,
    PRIMARY KEY (ps_partkey, ps_suppkey)
);

CREATE TABLE customer (
    c_custkey bigint PRIMARY KEY,
    c_name varchar(25) NOT NULL,
    c_address varchar(40) NOT NULL,
    c_nationkey bigint NOT NULL,
    c_phone varchar(15) NOT NULL,
    c_acctbal decimal(15, 2) NOT NULL,
    c_mktsegment varchar(10) NOT NULL,
    c_comment varchar(117) NOT NULL
);

CREATE TABLE orders (
    o_orderkey bigint PRIMARY KEY,
    o_custkey bigint NOT NULL,
    o_orderstatus varchar(1) NOT NULL,
    o_totalprice decimal(15, 2) NOT NULL,
    o_orderdate date NOT NULL,
    o_orderpriority varchar(15) NOT NULL,
    o_clerk varchar(15) NOT NULL,
    o_shippriority integer NOT NULL,
    o_comment varchar(79) NOT NULL
);

CREATE TABLE lineitem (
    l_orderkey bigint NOT NULL,
    l_partkey bigint NOT NULL,
    l_suppkey bigint NOT NULL,
    l_linenumber integer NOT NULL,
    l_quantity decimal(15, 2) NOT NULL,
    l_extendedprice decimal(15, 2) NOT NULL,
    l_discount decimal(15, 2) NOT NULL,
    l_tax decimal(15, 2) NOT NULL,
    l_returnflag varchar(1) NOT NULL,
    l_linestatus varchar(1) NOT NULL,
    l_shipdate date NOT NULL,
    l_commitdate date NOT NULL,
    l_receiptdate date NOT NULL,
    l_shipinstruct varchar(25) NOT NULL,
    l_shipmode varchar(10) NOT NULL,
    l_comment varchar(44) NOT NULL,
    PRIMARY KEY (l_orderkey, l_linenumber)
);
