from django.contrib import admin

from library.models import Author, Book, Tag

admin.site.register(Tag)


@admin.register(Author)
class AuthorAdmin(admin.ModelAdmin):
    search_fields = ["name"]


@admin.register(Book)
class BookAdmin(admin.ModelAdmin):
    list_display = ["title", "author", "price", "added"]
    list_filter = ["state", "tags"]
    search_fields = ["title", "author__name"]
    date_hierarchy = "added"
    autocomplete_fields = ["author"]
    filter_horizontal = ["tags"]
