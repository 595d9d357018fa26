// knex: migrations up and down, the schema builder, what inserts return, upserts, transactions in each other.
const assert = require('assert')
const knex = require('knex')({ client: 'pg', connection: { ssl: { rejectUnauthorized: false } }, pool: { max: 4 } })

const migrations = [
  {
    name: '1_create',
    up: async db => {
      await db.schema.createTable('knex_authors', t => {
        t.increments('id')
        t.string('name', 80).notNullable().unique()
        t.enu('kind', ['novel', 'poem']).defaultTo('novel')
        t.timestamps(true, true)
        t.comment('who writes')
      })
      await db.schema.createTable('knex_books', t => {
        t.bigIncrements('id')
        t.integer('author_id').notNullable().references('id').inTable('knex_authors').onDelete('CASCADE').index()
        t.string('title').notNullable()
        t.decimal('price', 10, 2).defaultTo(9.5)
        t.uuid('code').defaultTo(db.fn.uuid())
        t.boolean('lent').defaultTo(false)
        t.date('published')
        t.binary('cover')
        t.double('weight')
        t.text('note').defaultTo('none')
        t.unique(['author_id', 'title'], { indexName: 'knex_books_one' })
      })
    },
    down: db => db.schema.dropTable('knex_books').dropTable('knex_authors')
  },
  {
    name: '2_change',
    up: async db => {
      await db.schema.alterTable('knex_books', t => {
        t.renameColumn('note', 'blurb')
        t.integer('shelf').nullable()
        t.index(['published', 'price'], 'knex_books_published')
      })
      await db.schema.alterTable('knex_books', t => {
        t.string('title', 100).notNullable().alter()
        t.setNullable('lent')
        t.dropColumn('weight')
        t.check('price >= 0', [], 'knex_books_price')
      })
      await db.schema.createView('knex_cheap', view => {
        view.columns(['id', 'title'])
        view.as(db('knex_books').select('id', 'title').where('price', '<', 5))
      })
    },
    down: db => db.schema.dropView('knex_cheap').alterTable('knex_books', t => {
      t.dropChecks('knex_books_price')
      t.dropIndex([], 'knex_books_published')
      t.dropColumn('shelf')
      t.double('weight')
      t.renameColumn('blurb', 'note')
    })
  }
]
const migrationSource = {
  getMigrations: async () => migrations,
  getMigrationName: migration => migration.name,
  getMigration: async migration => migration
}

async function migrate () {
  assert.deepStrictEqual((await knex.migrate.latest({ migrationSource }))[1], ['1_create', '2_change'])
  await knex.migrate.rollback({ migrationSource })
  assert.strictEqual(await knex.schema.hasTable('knex_books'), false)
  await knex.migrate.up({ migrationSource })
  await knex.migrate.up({ migrationSource })
  assert.strictEqual(await knex.migrate.currentVersion({ migrationSource }), '2')
  assert(await knex.schema.hasColumn('knex_books', 'blurb'))
  const { title, price } = await knex('knex_books').columnInfo()
  assert.deepStrictEqual([title.type, title.maxLength, title.nullable], ['character varying', 100, false])
  assert.strictEqual(price.type, 'numeric')
}

async function rows () {
  const [ada, bob] = await knex('knex_authors').insert([{ name: 'Ada' }, { name: 'Bob', kind: 'poem' }]).returning('*')
  assert(ada.id === 1 && bob.kind === 'poem' && ada.kind === 'novel' && ada.created_at instanceof Date, ada)
  const books = await knex('knex_books').returning(['id', 'price', 'code', 'blurb']).insert([
    { author_id: ada.id, title: 'Notes', price: 4.25, cover: Buffer.from([0, 255]), published: '1843-09-01' },
    { author_id: bob.id, title: 'Seas' }])
  assert(books[0].price === '4.25' && books[1].price === '9.50' && books[1].blurb === 'none', books)
  assert.deepStrictEqual((await knex('knex_books').where({ id: books[0].id }).first()).cover, Buffer.from([0, 255]))
  const again = { author_id: ada.id, title: 'Notes', price: 5 }
  await knex('knex_books').insert(again).onConflict(['author_id', 'title']).ignore()
  await knex('knex_books').insert(again).onConflict(['author_id', 'title']).merge(['price'])
  assert.deepStrictEqual(await knex('knex_books').where('title', 'Notes').pluck('price'), ['5.00'])
  const joined = await knex('knex_books as b').join('knex_authors as a', 'a.id', 'b.author_id')
    .leftJoin('orders as o', 'o.customer', 'a.id').groupBy('a.name').orderBy('a.name')
    .select('a.name').count('o.id as many').sum('b.price as price').having('a.name', 'like', '%')
  assert.deepStrictEqual(joined.map(row => row.name), ['Ada', 'Bob'])
  const cte = await knex.with('dear', knex('knex_books').where('price', '>', 6)).from('dear').whereIn('author_id',
    knex('knex_authors').select('id').whereILike('name', 'b%')).select('title',
    knex.raw('row_number() OVER (ORDER BY id) AS place'))
  assert.deepStrictEqual(cte, [{ title: 'Seas', place: '1' }])
  assert.strictEqual((await knex('orders').orderBy('id').limit(5).offset(10).pluck('id'))[0], '11')
  assert.strictEqual((await knex('orders').distinct('customer').union(knex('customers').select('id'))).length, 100)
  assert.strictEqual(await knex('knex_books').where('title', 'Seas').increment('price', 1), 1)
  assert.deepStrictEqual(await knex('knex_books').update({ lent: true }, ['lent']).whereNull('shelf'),
    [{ lent: true }, { lent: true }])
  await knex.batchInsert('knex_authors', Array.from({ length: 300 }, (_, n) => ({ name: `a${n}` })), 100)
  let seen = 0
  for await (const row of knex('knex_authors').select('id').stream()) seen += row.id > 0
  assert.strictEqual(seen, 302)
  await assert.rejects(knex('knex_authors').insert({ name: 'Ada' }),
    { code: '23505', constraint: 'knex_authors_name_unique' })
  await assert.rejects(knex('knex_books').insert({ author_id: 0, title: 'x' }), { code: '23503' })
  await assert.rejects(knex('knex_authors').insert({ name: 'x', kind: 'none' }), { code: '23514' })
}

async function transactions () {
  await knex.transaction(async outer => {
    await outer('knex_authors').insert({ name: 'outer' })
    await outer.transaction(async inner => {
      await inner('knex_authors').insert({ name: 'inner' })
      throw new Error('back')
    }).catch(error => assert.strictEqual(error.message, 'back'))
    await outer('knex_authors').where({ name: 'outer' }).forUpdate().skipLocked().first()
  })
  assert.deepStrictEqual(await knex('knex_authors').whereIn('name', ['outer', 'inner']).pluck('name'), ['outer'])
  await knex.transaction(async tx => assert.strictEqual((await tx('orders').count('* as n'))[0].n, '1000'),
    { isolationLevel: 'repeatable read', readOnly: true })
  assert.strictEqual(await knex('knex_authors').where('name', 'like', 'a%').del(), 300)
  await knex('knex_books').truncate()
}

async function main () {
  for (const table of ['knex_migrations', 'knex_migrations_lock']) await knex.schema.dropTableIfExists(table)
  await migrate()
  await rows()
  await transactions()
  await knex.migrate.rollback({ migrationSource }, true)
  await knex.schema.dropTable('knex_migrations').dropTable('knex_migrations_lock')
  await knex.destroy()
  console.log('knex', require('knex/package.json').version)
}

main().catch(error => { console.error(error); process.exit(1) })
