# Active Record: migrations up and down, the schema's dump, models with associations, bulk inserts, locks, savepoints.
require "logger"
require "stringio"
require "active_record"

Base = ActiveRecord::Base
TABLES = %w[lendings books_readers readers books authors schema_migrations ar_internal_metadata]
ActiveRecord::Migration.verbose = false
ActiveRecord::Migrator.migrations_paths = [File.join(__dir__, "migrations")]

def check(holds, found = nil)
  raise "not so: #{found.inspect}" unless holds
end

def refused(kind)
  yield
rescue kind
  nil
else
  raise "#{kind} was not raised"
end

class Author < Base
  has_many :books, dependent: :destroy
  validates :name, presence: true, uniqueness: true
end

class Reader < Base
  has_and_belongs_to_many :books
end

class Book < Base
  belongs_to :author, counter_cache: true
  has_many :lendings
  has_and_belongs_to_many :readers
  validates :price, numericality: { greater_than: 0 }
  scope :cheap, -> { where(price: ..5) }
end

class Lending < Base
  belongs_to :book
end

# `rails db:migrate`, `db:migrate:status`, `db:rollback` and again, `db:schema:dump`.
def migrate
  pool = Base.connection_pool
  context = (pool.respond_to?(:migration_context) ? pool : Base.connection).migration_context
  context.migrate
  check(!context.needs_migration? && context.current_version == 20240502000000, context.current_version)
  check(context.migrations_status.map(&:first) == %w[up up], context.migrations_status)
  context.rollback(1)
  check(Base.connection.column_exists?(:books, :summary))
  context.rollback(1)
  check(!Base.connection.table_exists?(:books))
  context.migrate
end

# The schema as `rails db:schema:dump` writes it, of the tables made here.
def dump
  out = StringIO.new
  ActiveRecord::SchemaDumper.ignore_tables = Base.connection.tables - TABLES
  pool = Base.connection_pool
  ActiveRecord::SchemaDumper.dump(ActiveRecord.version >= Gem::Version.new("7.2") ? pool : Base.connection, out)
  out.string
end

def dumped(schema)
  [
    't.decimal "price", precision: 10, scale: 2, default: "9.5"', 't.uuid "code", default: -> { "gen_random_uuid()" }',
    't.string "shelf", limit: 10, default: "B", null: false, comment: "where it stands"',
    't.boolean "lent", default: false, null: false', 't.binary "cover"',
    't.index ["author_id", "title"], name: "index_books_on_author_id_and_title", unique: true, order: { title: :desc }',
    't.index ["shelf"], name: "books_by_shelf"', 'name: "books_price_not_negative"',
    'create_table "authors", comment: "who writes"', 'create_table "readers", id: :uuid',
    'create_table "lendings", force: :cascade do |t|', 'add_foreign_key "lendings", "books"',
    'add_foreign_key "books", "authors", on_delete: :cascade'
  ].each { |part| check(schema.include?(part), [part, schema]) }
end

def write_and_read
  ada = Author.create!(name: "Ada")
  bob = Author.create!(name: "Bob")
  check(!Author.new(name: "Ada").valid?)
  made = ada.books.create!(title: "Notes", price: "4.25", published: Date.new(1843, 9, 1),
    cover: "\x00\xff".b, weight: 1.5)
  made.reload
  check(made.price == BigDecimal("4.25") && made.published.year == 1843 && made.code.size == 36, made)
  check(made.cover == "\x00\xff".b && made.weight == 1.5, made)
  check(made.created_at.utc.to_f == Book.find(made.id).created_at.to_f)
  ada.books << Book.new(title: "Letters", price: 12)
  bob.books.create!([{ title: "Gardens", price: 9.5 }, { title: "Seas", price: 9.5, lent: true }])
  check(ada.reload.books_count == 2, ada)
  refused(ActiveRecord::RecordInvalid) { ada.books.create!(title: "Free", price: 0) }
  check(Book.cheap.pluck(:title) == ["Notes"])
  check(Author.includes(:books).order(:name).map { |author| author.books.size } == [2, 2])
  check(Author.eager_load(:books).where(books: { lent: true }).pluck(:name) == ["Bob"])
  check(Author.joins(:books).group(:name).order(:name).count == { "Ada" => 2, "Bob" => 2 })
  check(Author.left_joins(:books).where("books.price > ?", 10).distinct.pluck(:name) == ["Ada"])
  check(Author.where(Book.where("books.author_id = authors.id").where(lent: true).arel.exists).one?)
  check(Book.where(title: %w[Notes Seas]).or(Book.where(price: 12)).count == 3)
  check(Book.sum(:price) == BigDecimal("35.25") && Book.maximum(:published).year == 1843, Book.sum(:price))
  check(Book.average(:price).round(4) == BigDecimal("8.8125"), Book.average(:price))
  check(Book.order(:id).limit(2).offset(1).pluck(:title) == %w[Letters Gardens])
  check(Book.exists?(title: "Seas") && Book.find_by(title: "None").nil? && Book.order(:id).last.title == "Seas")
  reader = Reader.create!(name: "Cy", books: [made])
  check(made.readers.to_a == [reader] && Reader.joins(:books).where(books: { id: made.id }).count == 1)
  check(Author.find_or_create_by!(name: "Ada") == ada && Author.create_with(email: nil) && Author.count == 2)
  check(Book.all.explain.inspect.include?("books"))
end

def change_many
  now = Time.now.utc
  many = (1..50).map { |n| { name: "a#{n}", created_at: now, updated_at: now } }
  added = Author.insert_all(many, returning: %w[id name])
  check(added.rows.size == 50 && added.rows.first.last == "a1", added.rows.first)
  first = added.rows.first.first
  Author.upsert_all([{ id: first, name: "more", created_at: now, updated_at: now }])
  check(Author.find(first).name == "more")
  other = { author_id: first, title: "One", price: 9.5, created_at: now, updated_at: now }
  Book.upsert_all([other, { **other, title: "Two" }], unique_by: [:author_id, :title])
  Book.upsert_all([{ **other, price: 3 }], unique_by: [:author_id, :title])
  check(Book.insert_all([other]).rows.empty? && Book.where(author_id: first).pluck(:price).sort == [3, 9.5])
  refused(ActiveRecord::RecordNotUnique) { Book.insert_all!([other]) }
  seen = 0
  Author.where("name LIKE 'a%'").find_each(batch_size: 10) { seen += 1 }
  check(seen == 49 && Author.in_batches(of: 20).map(&:count).sum == 52, seen)
  check(Book.where(author_id: first).update_all("price = price * 2") == 2)
  check(Book.where(author_id: first).order(:title).pluck(:price) == [6, 19])
  check(Author.where("name LIKE 'a%'").delete_all == 49)
end

def transactions
  ada = Author.find_by!(name: "Ada")
  Author.transaction do
    Author.create!(name: "outer")
    Author.transaction(requires_new: true) do
      Author.create!(name: "inner")
      raise ActiveRecord::Rollback
    end
    # What fails within a savepoint leaves the rest.
    refused(ActiveRecord::NotNullViolation) do
      Author.transaction(requires_new: true) { Author.connection.execute("INSERT INTO authors (name) VALUES (NULL)") }
    end
    ada.lock!
    ada.update!(name: "Ada L.")
    Author.lock("FOR UPDATE SKIP LOCKED").find(ada.id)
  end
  check(Author.exists?(name: "outer") && !Author.exists?(name: "inner"))
  refused(ActiveRecord::InvalidForeignKey) { Book.where(title: "Notes").update_all(author_id: 0) }
  refused(ActiveRecord::StatementInvalid) { Book.where(title: "Notes").update_all(price: -1) }
  refused(ActiveRecord::ValueTooLong) { Book.where(title: "Notes").update_all(shelf: "x" * 11) }
  one, two = Book.find_by!(title: "Notes"), Book.find_by!(title: "Notes")
  one.update!(lent: true)
  refused(ActiveRecord::StaleObjectError) { two.update!(price: 7) }
  Author.transaction(isolation: :serializable) { check(Author.find(ada.id).name == "Ada L.") }
  ada.with_lock { Lending.create!(book: one, due: 1.day.from_now) }
  refused(ActiveRecord::InvalidForeignKey) { one.delete }
  Lending.delete_all
  ada.destroy!
  check(Book.where(title: %w[Notes Letters]).none?)
end

def remove
  TABLES.each { |table| Base.connection.drop_table(table, if_exists: true, force: :cascade) }
  check((Base.connection.tables & TABLES).empty?, Base.connection.tables)
end

# The default of Rails since 7.0: a new row names all its columns, with the defaults that the model knows.
Base.partial_inserts = false if Base.respond_to?(:partial_inserts=)
Base.establish_connection(adapter: "postgresql")
connection = Base.connection
check(connection.current_database == ENV["PGDATABASE"])
check(connection.primary_key("orders") == "id" && connection.indexes("orders").map(&:name) == ["orders_customer"])
remove
migrate
schema = dump
dumped(schema)
write_and_read
change_many
transactions
# `rails db:schema:load`.
eval(schema)
check(dump == schema, dump)
remove
puts "Active Record #{ActiveRecord.version}"
