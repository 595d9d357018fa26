class ChangeLibrary < ActiveRecord::Migration[6.1]
  disable_ddl_transaction!

  def change
    rename_column :books, :summary, :blurb
    add_column :books, :shelf, :string, limit: 10, comment: "where it stands"
    change_column_null :books, :shelf, false, "A"
    change_column_default :books, :shelf, from: nil, to: "B"
    reversible do |way|
      way.up { change_column :books, :views, :integer }
      way.down { change_column :books, :views, :bigint }
    end
    add_index :books, :shelf, algorithm: :concurrently
    rename_index :books, :index_books_on_shelf, :books_by_shelf
    add_check_constraint :books, "price >= 0", name: "books_price_not_negative"
    create_table(:loans) { |t| t.datetime :due }
    add_reference :loans, :book, foreign_key: true, index: true
    add_foreign_key :books_readers, :books
    remove_column :authors, :phone, :string
    rename_table :loans, :lendings
    change_table_comment :readers, from: nil, to: "who reads"
  end
end
