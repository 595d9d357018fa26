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
  const cursor = client.query(new Cursor('SELECT id FROM orders ORDER BY id'))
  assert.strictEqual((await cursor.read(3)).length, 3)
  assert.strictEqual((await cursor.read(5000)).length, 997)
  await cursor.close()
  await assert.rejects(client.query('SELECT emal FROM customers'), { code: '42703', hint: 'did you mean "email"?' })
  await client.end()
  console.log('pg', require('pg/package.json').version)
}

main().catch(error => { console.error(error); process.exit(1) })
