// TypeORM: migrations, tables made by `synchronize`, relations, query builder, locks, savepoints.
const assert = require('assert')
const { DataSource, EntitySchema, In, Like, MoreThan, IsNull, Not, Table } = require('typeorm')

const Author = new EntitySchema({
  name: 'Author',
  tableName: 'orm_authors',
  columns: {
    id: { type: Number, primary: true, generated: true },
    name: { type: String, length: 80, unique: true },
    born: { type: 'date', nullable: true },
    made: { type: 'timestamptz', createDate: true },
    changed: { type: 'timestamp', updateDate: true },
    gone: { type: 'timestamp', deleteDate: true },
    version: { type: Number, version: true }
  },
  relations: { books: { type: 'one-to-many', target: 'Book', inverseSide: 'author', cascade: true } }
})
const Book = new EntitySchema({
  name: 'Book',
  tableName: 'orm_books',
  columns: {
    id: { type: 'uuid', primary: true, generated: 'uuid' },
    title: { type: 'varchar', comment: 'on its cover' },
    price: { type: 'numeric', precision: 10, scale: 2, default: 9 },
    lent: { type: Boolean, default: false },
    kind: { type: 'text', default: 'novel' },
    weight: { type: 'double precision', nullable: true },
    views: { type: 'bigint', default: 0 },
    cover: { type: 'bytea', nullable: true },
    details: { type: 'simple-json', nullable: true },
    tags: { type: 'simple-array', nullable: true }
  },
  indices: [{ name: 'orm_books_title', columns: ['title', 'price'] }],
  uniques: [{ name: 'orm_books_one', columns: ['title', 'author'] }],
  checks: [{ name: 'orm_books_price', expression: 'price >= 0' }],
  relations: {
    author: {
      type: 'many-to-one',
      target: 'Author',
      inverseSide: 'books',
      onDelete: 'CASCADE',
      joinColumn: true,
      nullable: false
    },
    genres: { type: 'many-to-many', target: 'Genre', joinTable: { name: 'orm_books_genres' }, cascade: true },
    cardOf: { type: 'one-to-one', target: 'Card', inverseSide: 'book' }
  }
})
const Genre = new EntitySchema({
  name: 'Genre',
  tableName: 'orm_genres',
  columns: { id: { type: Number, primary: true, generated: 'identity' }, name: { type: String } }
})
const Card = new EntitySchema({
  name: 'Card',
  tableName: 'orm_cards',
  columns: {
    id: { type: Number, primary: true, generated: true }, due: { type: 'timestamp', default: () => 'now()' }
  },
  relations: {
    book: { type: 'one-to-one', target: 'Book', inverseSide: 'cardOf', joinColumn: true, onDelete: 'CASCADE' }
  }
})

class Places1700000000000 {
  name = 'Places1700000000000'
  async up (runner) {
    await runner.createTable(new Table({
      name: 'orm_places',
      columns: [{ name: 'id', type: 'serial', isPrimary: true },
        { name: 'name', type: 'varchar', length: '20', default: "'here'" }]
    }), true)
    await runner.query("INSERT INTO orm_places (name) VALUES ('x')")
  }

  async down (runner) {
    await runner.query('DROP TABLE orm_places')
  }
}

const options = {
  type: 'postgres',
  ssl: { rejectUnauthorized: false },
  entities: [Author, Book, Genre, Card],
  migrations: [Places1700000000000],
  host: process.env.PGHOST,
  port: Number(process.env.PGPORT),
  username: process.env.PGUSER,
  password: process.env.PGPASSWORD,
  database: process.env.PGDATABASE,
  migrationsTableName: 'orm_migrations',
  uuidExtension: 'pgcrypto'
}

async function migrate (source) {
  assert(await source.showMigrations())
  assert.strictEqual((await source.runMigrations({ transaction: 'each' })).length, 1)
  assert.deepStrictEqual(await source.query('SELECT name FROM orm_places WHERE id = $1', [1]), [{ name: 'x' }])
  await source.undoLastMigration()
}

async function synchronize (source) {
  const sql = await source.driver.createSchemaBuilder().log()
  assert(sql.upQueries.length > 8)
  await source.synchronize()
}

async function rows (source) {
  const authors = source.getRepository('Author')
  const books = source.getRepository('Book')
  const ada = await authors.save({
    name: 'Ada',
    born: '1815-12-10',
    books: [{ title: 'Letters' }, {
      title: 'Notes',
      price: 4.25,
      cover: Buffer.from([0, 255]),
      details: { of: [1] },
      tags: ['a', 'b'],
      genres: [{ name: 'science' }, { name: 'letters' }]
    }]
  })
  assert(ada.id > 0 && ada.version === 1 && ada.made instanceof Date && ada.books[0].id.length === 36, ada)
  await authors.save({ name: 'Bob', books: [{ title: 'Seas', lent: true }] })
  const found = await authors.find({
    relations: { books: { genres: true } },
    where: { name: Like('A%'), gone: IsNull(), books: { price: MoreThan(1) } },
    order: { name: 'ASC', books: { title: 'DESC' } }
  })
  assert.deepStrictEqual(found[0].books.map(book => [book.title, book.price, book.genres.length]),
    [['Notes', '4.25', 2], ['Letters', '9.00', 0]])
  assert.deepStrictEqual([found[0].books[0].details, found[0].books[0].tags, found[0].books[0].cover],
    [{ of: [1] }, ['a', 'b'], Buffer.from([0, 255])])
  // Pages of what has relations: the keys first, then the rows.
  const [page, total] = await books.findAndCount({
    relations: { author: true, genres: true }, order: { title: 'ASC' }, skip: 1, take: 1
  })
  assert.deepStrictEqual([page[0].title, page[0].author.name, total], ['Notes', 'Ada', 3])
  const some = await books.find({
    select: { title: true }, where: [{ title: In(['Seas']) }, { lent: Not(true), price: 4.25 }], order: { title: 1 }
  })
  assert.deepStrictEqual(some.map(book => book.title), ['Notes', 'Seas'])
  const counts = await authors.createQueryBuilder('a').leftJoin('a.books', 'b').select('a.name', 'name')
    .addSelect('COUNT(b.id)', 'many').addSelect('SUM(b.price)', 'sum').groupBy('a.name')
    .having('COUNT(b.id) > :n', { n: 0 }).orderBy('many', 'DESC').getRawMany()
  assert.deepStrictEqual(counts, [{ name: 'Ada', many: '2', sum: '13.25' }, { name: 'Bob', many: '1', sum: '9.00' }])
  const within = await books.createQueryBuilder('b').innerJoinAndSelect('b.author', 'a').where(query => 'b.id IN ' +
    query.subQuery().select('o.id').from('Book', 'o').where('o.price < :price').getQuery()).setParameter('price', 5)
    .skip(0).take(5).getMany()
  assert.strictEqual(within[0].author.name, 'Ada')
  const inserted = await source.createQueryBuilder().insert().into('Genre').values([{ name: 'x' }, { name: 'y' }])
    .returning('*').execute()
  assert.deepStrictEqual(inserted.raw.map(row => row.name), ['x', 'y'])
  await authors.upsert([{ name: 'Ada', born: '1815-12-11' }], ['name'])
  assert.strictEqual((await authors.findOneByOrFail({ name: 'Ada' })).born, '1815-12-11')
  const dearer = await books.createQueryBuilder().update().set({ price: () => 'price + 1' }).where('lent')
    .returning(['price']).execute()
  assert.strictEqual(dearer.raw[0].price, '10.00')
  await books.increment({ title: 'Seas' }, 'views', 5)
  assert.deepStrictEqual([await books.sum('views'), await books.maximum('price')], [5, 10])
  assert.deepStrictEqual([await books.countBy({ lent: true }), await books.existsBy({ title: 'x' })], [1, false])
  const card = await source.getRepository('Card').save({ book: ada.books[0] })
  const carded = await books.findOne({ where: { cardOf: { id: card.id } }, relations: { cardOf: true } })
  assert.strictEqual(carded.cardOf.id, card.id)
  await authors.softDelete({ name: 'Bob' })
  assert.deepStrictEqual([await authors.count(), await authors.count({ withDeleted: true })], [1, 2])
  await authors.restore({ name: 'Bob' })
  await assert.rejects(authors.insert({ name: 'Ada' }), { code: '23505' })
  await assert.rejects(books.update({ title: 'Seas' }, { price: -1 }), { code: '23514' })
  let seen = 0
  const orders = source.createQueryBuilder().select('id').from('orders', 'o')
  for await (const row of await orders.stream()) seen += row.id > 0
  assert.strictEqual(seen, 1000)
}

async function transactions (source) {
  await source.transaction('SERIALIZABLE', async outer => {
    await outer.insert('Genre', { name: 'outer' })
    await outer.transaction(async inner => {
      await inner.insert('Genre', { name: 'inner' })
      throw new Error('back')
    }).catch(error => assert.strictEqual(error.message, 'back'))
  })
  assert.strictEqual(await source.getRepository('Genre').countBy({ name: In(['outer', 'inner']) }), 1)
  await source.transaction(async tx => {
    const lock = { mode: 'pessimistic_write', onLocked: 'skip_locked' }
    const ada = await tx.findOne('Author', { where: { name: 'Ada' }, lock })
    await tx.save('Author', { ...ada, name: 'Ada L.' })
  })
  const ada = await source.getRepository('Author').findOneByOrFail({ name: 'Ada L.' })
  assert.strictEqual(ada.version, 2)
  await source.getRepository('Author').remove(ada)
  assert.strictEqual(await source.getRepository('Book').count(), 1)
  await source.getRepository('Card').clear()
}

async function main () {
  const source = await new DataSource(options).initialize()
  await migrate(source)
  await synchronize(source)
  await rows(source)
  await transactions(source)
  await source.query('DROP TABLE orm_migrations, orm_cards, orm_books_genres, orm_books, orm_genres, orm_authors')
  await source.destroy()
  console.log('TypeORM', require(require.resolve('typeorm').replace('index.js', 'package.json')).version)
}

main().catch(error => { console.error(error); process.exit(1) })
