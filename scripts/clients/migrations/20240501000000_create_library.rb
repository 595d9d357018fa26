class CreateLibrary < ActiveRecord::Migration[6.1]
  def change
    create_table :authors, comment: "who writes" do |t|
      t.string :name, null: false, limit: 80
      t.string :email
      t.string :phone
      t.integer :books_count, null: false, default: 0
      t.timestamps
    end
    add_index :authors, :email, unique: true
    create_table :books do |t|
      t.references :author, null: false, foreign_key: { on_delete: :cascade }
      t.string :title, null: false
      t.text :summary
      t.decimal :price, precision: 10, scale: 2, default: "9.5"
      t.date :published
      t.boolean :lent, null: false, default: false
      t.binary :cover
      t.uuid :code, default: -> { "gen_random_uuid()" }
      t.float :weight
      t.bigint :views, default: 0
      t.integer :lock_version, default: 0
      t.timestamps
      t.index [:author_id, :title], unique: true, order: { title: :desc }
    end
    add_index :books, :published
    create_table :readers, id: :uuid do |t|
      t.string :name
    end
    create_table :books_readers, id: false do |t|
      t.references :book, null: false
      t.references :reader, null: false, type: :uuid, foreign_key: true
      t.index [:book_id, :reader_id], unique: true
    end
  end
end
