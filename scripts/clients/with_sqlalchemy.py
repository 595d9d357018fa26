"""SQLAlchemy 2 over psycopg: reflection, then queries and changes of the reflected tables."""

import sqlalchemy as sa

engine = sa.create_engine("postgresql+psycopg://")
inspector = sa.inspect(engine)
assert {"customers", "orders"} <= set(inspector.get_table_names())
assert inspector.get_view_names() == []
columns = {column["name"]: (str(column["type"]), column["nullable"], column["default"])
           for column in inspector.get_columns("customers")}
assert columns == {
    "id": ("INTEGER", False, None),
    "email": ("VARCHAR(60)", False, None),
    "born": ("DATE", True, None),
    "note": ("TEXT", True, "'none'::text"),
}, columns
assert inspector.get_pk_constraint("customers")["constrained_columns"] == ["id"]
assert [(unique["name"], unique["column_names"])
        for unique in inspector.get_unique_constraints("customers")] == [("customers_email_key", ["email"])]
indexes = {index["name"]: (index["column_names"], index["unique"], index.get("column_sorting"))
           for index in inspector.get_indexes("orders")}
assert indexes == {"orders_customer": (["customer", "placed"], False, {"placed": ("desc",)})}, indexes
assert inspector.get_foreign_keys("orders") == [] and inspector.get_check_constraints("orders") == []
[key] = inspector.get_foreign_keys("visits")
assert (key["name"], key["constrained_columns"], key["referred_table"],
        key["referred_columns"]) == ("visits_customer_fkey", ["customer"], "customers", ["id"]), key
assert key["options"] == {"ondelete": "CASCADE"}, key
assert inspector.has_table("orders") and not inspector.has_table("nothing")
metadata = sa.MetaData()
metadata.reflect(engine)
orders, customers = metadata.tables["orders"], metadata.tables["customers"]
with engine.connect() as connection:
    query = sa.select(customers.c.email, sa.func.count()).join(orders, orders.c.customer == customers.c.id)
    rows = connection.execute(query.group_by(customers.c.email).order_by(customers.c.email).limit(2)).all()
    assert rows == [("c100@example.org", 10), ("c10@example.org", 10)], rows
    assert connection.execute(sa.select(sa.func.sum(orders.c.total))).scalar() == 1250
with engine.begin() as connection:
    connection.execute(sa.insert(orders),
                       [{"id": 2001, "customer": 1, "total": 5}, {"id": 2002, "customer": 2, "total": 6}])
    doubled = sa.update(orders).where(orders.c.id > 2000).values(total=orders.c.total * 2)
    changed = connection.execute(doubled.returning(orders.c.total))
    assert sorted(changed.scalars()) == [10, 12]
with engine.begin() as connection:
    assert connection.execute(sa.delete(orders).where(orders.c.id > 2000)).rowcount == 2
print("SQLAlchemy", sa.__version__)
