// node-postgres: parameters, prepared statements, cursors, errors.
const assert = require('assert')
const { Client } = require('pg')
const Cursor = require('pg-cursor')

async function main () {
  const client = new Client({ ssl: { rejectUnauthorized: false } })
  await client.connect()
  const named = { name: 'by_id', text: 'SELECT email FROM customers WHERE id = $1' }
  for (const id of [1, 7]) {
    assert.strictEqual((await client.query({ ...named, values: [id] })).rows[0].email, `c${id}@example.org`)
  }
  const any = await client.query('SELECT id FROM customers WHERE id = ANY($1) ORDER BY id', [[3, 1, 99999]])
  assert.deepStrictEqual(any.rows.map(row => row.id), [1, 3])
  const none = await client.query('SELECT count(*) AS n FROM customers WHERE email <> ALL($1::text[])',
    [['c1@example.org']])
  assert.strictEqual(none.rows[0].n, '99')
  // Of two statements in one message both are done, or none.
  await assert.rejects(client.query('DELETE FROM orders WHERE id = 1; SELECT 1 / 0 FROM orders WHERE id = 2'),
    { code: '22012' })
  assert.strictEqual((await client.query('SELECT count(*) AS n FROM orders')).rows[0].n, '1000')
  const cursor = client.query(new Cursor('SELECT id FROM orders ORDER BY id'))
  assert.strictEqual((await cursor.read(3)).length, 3)
  assert.strictEqual((await cursor.read(5000)).length, 997)
  await cursor.close()
  await assert.rejects(client.query('SELECT emal FROM customers'), { code: '42703', hint: 'did you mean "email"?' })
  await client.end()
  console.log('pg', require('pg/package.json').version)
}

main().catch(error => { console.error(error); process.exit(1) })
