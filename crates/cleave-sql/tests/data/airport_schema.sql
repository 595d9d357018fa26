-- Two tables in the shape of a messy real data set, with keys, defaults and types of their own.
CREATE TABLE airport (
    id integer NOT NULL PRIMARY KEY,
    name text NOT NULL,
    iata character(3),
    latitude double precision,
    altitude_ft integer,
    utc_offset numeric(4, 2),
    source character varying(20) DEFAULT 'OurAirports'
);

CREATE TABLE visit (
    airport_id integer,
    at timestamp with time zone DEFAULT now(),
    stay interval,
    CONSTRAINT visit_key PRIMARY KEY (airport_id, at)
);
