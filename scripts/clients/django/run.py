"""Django 5.2: migrations, the admin, dumpdata and loaddata, inspectdb, and queries of the ORM."""

import difflib
import io
import json
import os
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path

os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import django

django.setup()

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import DatabaseError, IntegrityError, connection, models, transaction
from django.db.models import functions
from django.test import Client
from library.models import Author, Book, Tag


def say(*command, **options):
    out = io.StringIO()
    call_command(*command, stdout=out, **options)
    return out.getvalue()


def migrations():
    Path("library/migrations").mkdir()
    Path("library/migrations/__init__.py").touch()
    say("makemigrations", "library", verbosity=0)
    say("migrate", verbosity=0)
    assert "[ ]" not in say("showmigrations"), say("showmigrations")
    say("check", databases=["default"])
    say("makemigrations", check_changes=True)


# Changes that projects make to tables with rows in them.
CHANGES = '''
from django.db import migrations, models


def fill(apps, schema_editor):
    apps.get_model("library", "Author").objects.update(note="filled")


class Migration(migrations.Migration):
    dependencies = [("library", "0001_initial")]
    operations = [
        migrations.AddField("author", "note", models.TextField(default="none")),
        migrations.AddField("book", "second", models.ForeignKey("library.Author", models.SET_NULL, null=True)),
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.AlterField("author", "note", models.CharField(max_length=20, null=True, unique=False)),
        migrations.AlterField("book", "title", models.TextField()),
        migrations.AlterField("book", "pages", models.BigIntegerField(null=True)),
        migrations.RenameField("author", "note", "remark"),
        migrations.RenameModel("Tag", "Label"),
        migrations.RenameIndex("book", new_name="book_by_author", old_name="book_author_added"),
        migrations.AddIndex("book", models.Index(fields=["price"], name="book_price")),
        migrations.AlterUniqueTogether("book", {("author", "key")}),
        migrations.RemoveConstraint("book", "book_price_positive"),
        migrations.CreateModel("Loan", [
            ("id", models.AutoField(primary_key=True)),
            ("book", models.OneToOneField("library.Book", models.CASCADE)),
        ]),
        migrations.AlterModelTable("loan", "loans"),
        migrations.AlterField("loan", "id", models.BigAutoField(primary_key=True)),
    ]
'''


def changed_tables():
    later = Path("library/migrations/0002_changes.py")
    later.write_text(CHANGES)
    say("migrate", "library", verbosity=0)
    say("sqlmigrate", "library", "0002")
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*), count(remark) FROM library_author")
        assert cursor.fetchone() == (2, 2)
    say("migrate", "library", "0001", verbosity=0)
    later.unlink()
    assert Author.objects.count() == 2


def admin():
    os.environ["DJANGO_SUPERUSER_PASSWORD"] = "a pencil"
    say("createsuperuser", username="ada", email="ada@example.org", interactive=False)
    client = Client()
    assert client.get("/admin/").status_code == 302
    assert not client.login(username="ada", password="wrong")
    page = client.post("/admin/login/?next=/admin/", {"username": "ada", "password": "a pencil"})
    assert page.status_code == 302 and page.url == "/admin/", page.content
    assert b"Site administration" in client.get("/admin/").content

    def post(path, **values):
        page = client.post(path, values)
        assert page.status_code == 302, page.content.decode()

    post("/admin/library/tag/add/", slug="maths")
    post("/admin/library/tag/add/", slug="engines")
    post("/admin/library/author/add/", name="Ada", email="ada@example.org", born="1815-12-10")
    again = client.post("/admin/library/author/add/", {"name": "Ada", "email": "ada@example.org"})
    assert b"already exists" in again.content
    ada = Author.objects.get()
    maths = Tag.objects.get(slug="maths")
    post("/admin/library/book/add/", title="Notes", author=ada.pk, tags=[maths.pk], state="d", price="9.50", pages="66",
         lent="1 02:03:04", opens="08:30:00")
    book = Book.objects.get(title="Notes")
    assert (book.price, book.lent, book.opens) == (Decimal("9.50"), timedelta(1, 7384), time(8, 30))
    assert [*book.tags.all()] == [maths]
    change = f"/admin/library/book/{book.pk}/change/"
    assert b"Notes" in client.get(change).content
    post(change, title="Notes on the Engine", author=ada.pk, tags=[t.pk for t in Tag.objects.all()], state="p",
         price="10", pages="67")
    for query in ["", "?q=engine+ada", "?state__exact=p", f"?tags__id__exact={maths.pk}", "?o=-3.1",
                  "?added__year=2000"]:
        page = client.get("/admin/library/book/" + query)
        assert page.status_code == 200 and (b"Notes on the Engine" in page.content) == ("2000" not in query), query
    found = client.get("/admin/autocomplete/", {"term": "ad", "app_label": "library", "model_name": "book",
                                                "field_name": "author"})
    assert [row["text"] for row in found.json()["results"]] == ["Ada"]
    assert b"Changed" in client.get(f"/admin/library/book/{book.pk}/history/").content
    assert b"Are you sure" in client.get(f"/admin/library/author/{ada.pk}/delete/").content
    post("/admin/library/book/", action="delete_selected", _selected_action=[book.pk], post="yes")
    post(f"/admin/library/author/{ada.pk}/delete/", post="yes")
    assert not Book.objects.exists() and not Author.objects.exists()
    client.post("/admin/logout/")
    assert client.get("/admin/").status_code == 302


def orm():
    ada, bob = Author.objects.bulk_create([
        Author(name="Ada", email="ada@example.org", born=date(1815, 12, 10)),
        Author(name="Bob 100%", email="bob@example.org"),
    ])
    books = [Book(title=f"Book {n}", author=(ada, bob)[n % 2], price=n, pages=n * 10, cover=bytes([0, n]),
                  weight=n / 4, lent=timedelta(hours=n)) for n in range(20)]
    Book.objects.bulk_create(books, batch_size=7)
    assert all(book.pk for book in books) and bytes(Book.objects.get(pk=books[3].pk).cover) == b"\0\3"
    Book.objects.bulk_create([Book(title="Book 1", author=bob, price=50)], update_conflicts=True,
                             unique_fields=["author", "title"], update_fields=["price"])
    Tag.objects.bulk_create([Tag(slug=slug) for slug in ["a", "maths", "b"]], ignore_conflicts=True)
    books[0].tags.set(Tag.objects.all())
    assert Author.objects.get_or_create(email="ada@example.org", defaults={"name": "other"}) == (ada, False)
    assert not Author.objects.update_or_create(email="bob@example.org", defaults={"born": date(2000, 1, 2)})[1]

    # Conditions, joins, aggregates, subqueries, windows.
    assert Author.objects.filter(name__contains="100%").get() == bob
    assert Author.objects.filter(email__istartswith="ADA").get() == ada
    assert Author.objects.filter(name__iregex=r"^a.a$").get() == ada
    assert Author.objects.filter(born__year__lt=1900, born__month=12, born__week_day=1).get() == ada
    assert Book.objects.filter(author__name="Ada", price__in=[2, 4, 5]).count() == 2
    assert Book.objects.filter(added__date=datetime.now(timezone.utc).date()).exists()
    assert Book.objects.exclude(tags__slug="a").count() == 19
    assert [*Author.objects.annotate(many=models.Count("books"), dear=models.Max("books__price")).filter(many__gt=5)
            .values_list("name", "many", "dear")] == [("Ada", 10, 18), ("Bob 100%", 10, 50)]
    sums = Book.objects.aggregate(models.Sum("price"), models.Avg("weight"), models.StdDev("pages"),
                                  models.Sum("lent"), odd=models.Count("pk", filter=models.Q(author=bob)))
    assert (sums["price__sum"], sums["weight__avg"], sums["lent__sum"], sums["odd"]) == (
        239, 2.375, timedelta(hours=190), 10), sums
    newest = Book.objects.filter(author=models.OuterRef("pk")).order_by("-price").values("title")[:1]
    assert [*Author.objects.annotate(dearest=models.Subquery(newest)).values_list("dearest", flat=True)] == [
        "Book 18", "Book 1"]
    dear = Book.objects.filter(author=models.OuterRef("pk"), price=50)
    assert Author.objects.filter(models.Exists(dear)).get() == bob
    ranks = Book.objects.annotate(place=models.Window(functions.Rank(), partition_by="author",
                                                      order_by=models.F("price").desc()))
    assert {book.title for book in ranks.filter(place=1)} == {"Book 18", "Book 1"}
    by_day = Book.objects.annotate(day=functions.TruncDay("added")).values("day").annotate(n=models.Count("pk"))
    assert sum(row["n"] for row in by_day.order_by("day")) == 20
    kinds = Book.objects.annotate(kind=models.Case(models.When(price__gt=10, then=models.Value("dear")),
                                                   default=models.Value("cheap"))).values("kind")
    assert [*kinds.annotate(n=models.Count("pk")).order_by("kind")] == [
        {"kind": "cheap", "n": 10}, {"kind": "dear", "n": 10}]
    assert Author.objects.annotate(both=functions.Concat("name", models.Value(" "), functions.Upper("name")),
                                   length=functions.Length("name")).get(length=3).both == "Ada ADA"
    few = Book.objects.filter(price__lt=3)
    assert few.union(Book.objects.filter(price__gt=17)).count() == 5
    assert few.difference(Book.objects.filter(price=2)).count() == 1
    pair = Book.objects.select_related("author").order_by("pk")[2:4]
    assert [book.author.name for book in pair] == ["Ada", "Bob 100%"]
    assert len([*Book.objects.prefetch_related("tags").order_by("author__name", "-price")[:5]]) == 5
    assert len([*Book.objects.iterator(chunk_size=3)]) == 20
    assert Book.objects.distinct("author").order_by("author_id", "pk").count() == 2
    assert [*Book.objects.dates("added", "year")] != [] and Book.objects.in_bulk([books[0].pk])
    assert Author.objects.raw("SELECT * FROM library_author WHERE name = %s", ["Ada"])[0] == ada
    Book.objects.filter(author=ada).update(price=models.F("price") + 1, weight=None)
    books[2].refresh_from_db()
    assert books[2].price == 3 and books[2].weight is None
    for book in books:
        book.pages += 1
    Book.objects.bulk_update(books, ["pages", "lent"], batch_size=10)
    assert Book.objects.explain() and Book.objects.filter(pages=31).get().title == "Book 3"
    for refused in [{"price": -1, "title": "x"}, {"price": 1, "title": "Book 2"}]:
        try:
            with transaction.atomic():
                Book.objects.create(author=ada, **refused)
            raise AssertionError(refused)
        except IntegrityError as reason:
            assert "book_" in str(reason), reason


def blocks():
    first, second = Tag.objects.order_by("pk")[:2]
    kept = second.pk
    with transaction.atomic():
        first.slug = "changed"
        first.save()
        try:
            with transaction.atomic():
                second.delete()
                raise DatabaseError
        except DatabaseError:
            pass
        done = []
        transaction.on_commit(lambda: done.append(1))
        assert not done
    assert done and Tag.objects.get(pk=first.pk).slug == "changed" and Tag.objects.filter(pk=kept).exists()
    other = connection.copy()
    try:
        with transaction.atomic():
            assert Tag.objects.select_for_update().get(pk=first.pk) == first
            with other.cursor() as cursor:
                free = str(Tag.objects.order_by("pk").values("pk").query)
                cursor.execute(free + " FOR UPDATE SKIP LOCKED")
                assert (first.pk,) not in cursor.fetchall()
                try:
                    cursor.execute(free + " FOR UPDATE NOWAIT")
                    raise AssertionError("the lock was given twice")
                except DatabaseError as reason:
                    assert "could not obtain lock" in str(reason), reason
            assert Book.objects.select_for_update(skip_locked=True, of=("self",)).select_related("author")[:3]
            assert Tag.objects.select_for_update(no_key=True, nowait=True).count() >= 2
    finally:
        other.close()


def dumps():
    whole = say("dumpdata", "library", "auth.user", indent=1)
    assert len(json.loads(whole)) > 20
    Path("dump.json").write_text(whole)
    Author.objects.all().delete()
    say("loaddata", "dump.json", verbosity=0)
    again = say("dumpdata", "library", "auth.user", indent=1)
    assert again == whole, "".join(difflib.unified_diff(whole.splitlines(True), again.splitlines(True)))
    Author.objects.create(name="Eve", email="eve@example.org").delete()
    assert "SELECT setval" in say("sqlsequencereset", "library", no_color=True)


def inspection():
    tables = say("inspectdb")
    for expected in ["class LibraryBook(models.Model):", "author = models.ForeignKey(LibraryAuthor, models.DO_NOTHING)",
                     "key = models.UUIDField(unique=True)", "'author', 'title')",
                     "price = models.DecimalField(max_digits=8, decimal_places=2)",
                     "state = models.CharField(max_length=1)", "title = models.CharField(max_length=200)",
                     "lent = models.DurationField(blank=True, null=True)",
                     "cover = models.BinaryField(blank=True, null=True)",
                     "class DjangoSession(models.Model):"]:
        assert expected in tables, (expected, tables)
    with connection.cursor() as cursor:
        kept = connection.introspection.get_constraints(cursor, "library_book")
    assert kept["book_author_added"]["orders"] == ["ASC", "DESC"] and kept["book_price_positive"]["check"], kept


def ending():
    say("clearsessions")
    say("flush", interactive=False, verbosity=0)
    assert not Author.objects.exists() and get_user_model().objects.count() == 0
    say("migrate", "library", "zero", verbosity=0)
    assert "library_book" not in connection.introspection.table_names()


if __name__ == "__main__":
    for step in [migrations, admin, orm, changed_tables, blocks, dumps, inspection, ending]:
        step()
    print("Django", django.get_version())
