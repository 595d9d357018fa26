import uuid

from django.db import models


class Author(models.Model):
    name = models.CharField(max_length=80, db_index=True)
    email = models.EmailField(unique=True)
    born = models.DateField(null=True, blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self):
        return self.name


class Tag(models.Model):
    slug = models.SlugField(unique=True)

    class Meta:
        ordering = ["slug"]

    def __str__(self):
        return self.slug


class Book(models.Model):
    class State(models.TextChoices):
        DRAFT = "d"
        PRINTED = "p"

    key = models.UUIDField(default=uuid.uuid4, editable=False, unique=True)
    title = models.CharField(max_length=200)
    author = models.ForeignKey(Author, on_delete=models.CASCADE, related_name="books")
    tags = models.ManyToManyField(Tag, blank=True)
    state = models.CharField(max_length=1, choices=State.choices, default=State.DRAFT)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    pages = models.PositiveIntegerField(default=0, db_default=1)
    weight = models.FloatField(null=True, blank=True)
    added = models.DateTimeField(auto_now_add=True)
    opens = models.TimeField(null=True, blank=True)
    lent = models.DurationField(null=True, blank=True)
    cover = models.BinaryField(null=True)

    class Meta:
        ordering = ["-added", "title"]
        indexes = [models.Index(fields=["author", "-added"], name="book_author_added")]
        constraints = [
            models.CheckConstraint(condition=models.Q(price__gte=0), name="book_price_positive"),
            models.UniqueConstraint(fields=["author", "title"], name="book_author_title"),
        ]

    def __str__(self):
        return self.title
