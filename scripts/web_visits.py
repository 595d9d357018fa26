"""A table of visits to web pages, as log analysis has it: one wide table, made by DuckDB from hashes of the row number.

Rows come in the order of their time. Texts, users and pages are skewed: few are frequent, many occur once. At scale 1
it has 10 million rows.
"""

ROWS_PER_SCALE = 10_000_000
SCHEMA = """
CREATE TABLE visits (
    event_time timestamp NOT NULL,
    event_date date NOT NULL,
    site integer NOT NULL,
    user_id bigint NOT NULL,
    address bigint NOT NULL,
    url varchar NOT NULL,
    referrer varchar NOT NULL,
    title varchar NOT NULL,
    phrase varchar NOT NULL,
    phone varchar NOT NULL,
    region integer NOT NULL,
    system smallint NOT NULL,
    browser smallint NOT NULL,
    width smallint NOT NULL,
    height smallint NOT NULL,
    campaign smallint NOT NULL,
    is_reload smallint NOT NULL,
    age smallint NOT NULL,
    load_ms integer NOT NULL,
    price numeric(10, 2)
)
"""
WORDS = ("river paper green bicycle cheap garden winter music phone ticket repair orange weather school kitchen travel "
         "market silver window camera house summer recipe engine yellow hotel leather doctor movie island").split()
PHONES = ["", "", "", "", "", "", "Aster 3", "Aster 4", "Birch", "Birch Mini", "Cedar X", "Dahlia 10", "Elm Pro"]
SECTIONS = ["news", "shop", "cart", "profile", "search", "help", "video", "forum"]


def rows(count):
    """A query of DuckDB that gives `count` rows of the table."""
    return f"""
    WITH numbers AS (SELECT range AS i FROM range({count})),
    drawn AS (SELECT i,
        {", ".join(f"(hash(i * 64 + {k}) >> 11) / 9007199254740992.0 AS u{k}" for k in range(20))} FROM numbers),
    chosen AS (SELECT *,
        TIMESTAMP '2025-07-01' + to_microseconds(i * {30 * 86_400_000_000 // count}) AS event_time,
        (pow(u0, 4) * 6000)::integer AS site,
        (pow(u1, 3) * {max(count // 6, 10)})::bigint AS user_number,
        (pow(u2, 3) * 40000)::integer AS page,
        {listed(SECTIONS, "u3 * u3")} AS section
        FROM drawn)
    SELECT event_time, event_time::date, site, (hash(user_number) >> 1)::bigint, (hash(user_number // 3) >> 32)::bigint,
        'https://site' || site || '.example/' || section || '/' || page
            || CASE WHEN u4 < 0.2 THEN '?from=' || (u5 * 1000)::integer ELSE '' END,
        CASE WHEN u6 < 0.5 THEN ''
            ELSE 'https://' || {listed(WORDS, "u7 * u7")} || (u8 * 300)::integer || '.example/' || page END,
        {listed(WORDS, "u9")} || ' ' || section || ' ' || page,
        CASE WHEN u10 < 0.85 THEN ''
            ELSE {listed(WORDS, "u11 * u11")} || ' ' || {listed(WORDS, "u12")}
                || CASE WHEN u13 < 0.4 THEN ' ' || (u14 * u14 * 3000)::integer ELSE '' END END,
        {listed(PHONES, "u15")}, (pow(u16, 3) * 5000)::integer, (u17 * u17 * 40)::smallint, (u18 * u18 * 60)::smallint,
        (800 + (u19 * 12)::integer * 160)::smallint, (600 + (u19 * 8)::integer * 120)::smallint,
        CASE WHEN u13 < 0.95 THEN 0 ELSE (u14 * 20)::smallint END, (u5 < 0.1)::smallint,
        CASE WHEN u8 < 0.4 THEN 0 ELSE (16 + u9 * 60)::smallint END, (20 + pow(u4, 6) * 20000)::integer,
        CASE WHEN section = 'cart' AND u12 < 0.7 THEN (u7 * 30000)::numeric(10, 2) / 100 END
    FROM chosen"""


def listed(values, share):
    texts = ", ".join(f"'{value}'" for value in values)
    return f"([{texts}])[1 + ({share} * {len(values)} - 0.5)::integer % {len(values)}]"
