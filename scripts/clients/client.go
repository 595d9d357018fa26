// pgx: parameters in binary, a block that reads, a batch, errors.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, "")
	check(err)
	var email string
	var born time.Time
	check(connection.QueryRow(ctx, "SELECT email, born FROM customers WHERE id = $1", 7).Scan(&email, &born))
	if email != "c7@example.org" || born.Year() != 2000 {
		panic(email)
	}
	tx, err := connection.Begin(ctx)
	check(err)
	rows, err := tx.Query(ctx, "SELECT id FROM orders ORDER BY id")
	check(err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	check(err)
	check(tx.Commit(ctx))
	if len(ids) != 1000 {
		panic(len(ids))
	}
	batch := &pgx.Batch{}
	for id := 1; id <= 5; id++ {
		batch.Queue("SELECT email FROM customers WHERE id = $1", id)
	}
	results := connection.SendBatch(ctx, batch)
	for id := 1; id <= 5; id++ {
		check(results.QueryRow().Scan(&email))
		if email != fmt.Sprintf("c%d@example.org", id) {
			panic(email)
		}
	}
	check(results.Close())
	_, err = connection.Exec(ctx, "SELECT 1/0")
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "22012" {
		panic(err)
	}
	check(connection.Close(ctx))
	fmt.Println("pgx v5")
}
