--
-- PostgreSQL database dump
--

\restrict x

-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: orders; Type: TABLE; Schema: public; Owner: postgres
--

CREATE TABLE public.orders (
    id bigint NOT NULL,
    line smallint NOT NULL,
    customer integer,
    total numeric(10,2) DEFAULT 0,
    weight double precision,
    photo bytea,
    tag uuid
);


ALTER TABLE public.orders OWNER TO postgres;

--
-- Name: customers; Type: TABLE; Schema: public; Owner: postgres
--

CREATE TABLE public.customers (
    id integer NOT NULL,
    email character varying(60) NOT NULL,
    born date,
    note text DEFAULT 'none; (nothing)'::text,
    active boolean DEFAULT true NOT NULL,
    made timestamp with time zone DEFAULT now()
);


ALTER TABLE public.customers OWNER TO postgres;

--
-- Name: TABLE customers; Type: COMMENT; Schema: public; Owner: postgres
--

COMMENT ON TABLE public.customers IS 'who buys';


--
-- Name: strange; Type: TABLE; Schema: public; Owner: postgres
--

CREATE TABLE public.strange (
    at point,
    tags text[] DEFAULT ARRAY['a'::text]
);


ALTER TABLE public.strange OWNER TO postgres;

--
-- Data for Name: customers; Type: TABLE DATA; Schema: public; Owner: postgres
--

COPY public.customers (id, email, born, note, active, made) FROM stdin;
1	a@example.org	1990-02-03	tab\there\nline	t	2024-01-02 03:04:05+00
2	b@example.org	\N	\N	f	2024-01-02 03:04:06.5+00
\.


--
-- Data for Name: orders; Type: TABLE DATA; Schema: public; Owner: postgres
--

COPY public.orders (id, line, customer, total, weight, photo, tag) FROM stdin;
10	1	1	9.99	0.5	\\x00ff5c	6ba7b810-9dad-11d1-80b4-00c04fd430c8
10	2	1	120.00	1e+300	\N	\N
11	1	2	\N	\N	\N	\N
\.


--
-- Data for Name: strange; Type: TABLE DATA; Schema: public; Owner: postgres
--

COPY public.strange (at, tags) FROM stdin;
(1,2)	{a,"b c"}
\.


--
-- Name: once; Type: TABLE; Schema: public; Owner: postgres
--

CREATE TABLE public.once (
    a integer,
    CONSTRAINT once_a_check CHECK ((a > 1))
);


COPY public.once (a) FROM stdin;
2
1
\.


--
-- Name: customers customers_email_key; Type: CONSTRAINT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public.customers
    ADD CONSTRAINT customers_email_key UNIQUE (email);


--
-- Name: customers customers_pkey; Type: CONSTRAINT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public.customers
    ADD CONSTRAINT customers_pkey PRIMARY KEY (id);


--
-- Name: orders orders_pkey; Type: CONSTRAINT; Schema: public; Owner: postgres
--

ALTER TABLE ONLY public.orders
    ADD CONSTRAINT orders_pkey PRIMARY KEY (id, line);


--
-- Name: orders_customer; Type: INDEX; Schema: public; Owner: postgres
--

CREATE INDEX orders_customer ON public.orders USING btree (customer, total DESC);


--
-- Name: orders_tag; Type: INDEX; Schema: public; Owner: postgres
--

CREATE UNIQUE INDEX orders_tag ON public.orders USING btree (tag);


--
-- PostgreSQL database dump complete
--

\unrestrict x

