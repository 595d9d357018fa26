CREATE TABLE particles (
    id bigint PRIMARY KEY,
    x real NOT NULL,
    y real NOT NULL,
    z real NOT NULL,
    ux real NOT NULL,
    uy real NOT NULL,
    uz real NOT NULL,
    ke real NOT NULL
);
