//! Generates a database like the Internet Movie Database, with the schema of the Join Order Benchmark: 21 tables for a
//! given scale (1.0 is the size of the snapshot of 2013 that the benchmark was made for, 74 million rows).
//!
//! 1. [`World`] holds sizes, distributions, and how many rows of each table the titles and people before each block
//!    ([`BLOCK`] of them) have: small, and the only state kept.
//! 2. [`Movie`] computes a title's hidden traits from its id.
//! 3. [`fan_out`] computes how many rows of each table a title has: `count = f(id)`. With the sums by block, row
//!    numbers are known everywhere without generating the rows before.
//! 4. One file for each subject writes the rows: [`titles`], [`keywords`], [`companies`], [`cast`], [`infos`],
//!    [`ratings`], [`links`], [`people`].
//!
//! ```text
//! id ──▶ Movie: kind, year, country, genres, popularity
//!           ├──▶ fan_out ──▶ sums by block ──▶ ids of rows
//!           └──▶ keywords, companies, cast, infos ... ──▶ Rows ──▶ RecordBatch
//! ```
//!
//! The figures in these files were fitted to published sizes of sub-plans of the benchmark on the real data. The only
//! texts of the original are the constants of the benchmark's queries.

mod cast;
mod companies;
mod famous;
mod fan_out;
mod genres;
mod infos;
mod keywords;
mod links;
mod movie;
mod names;
mod people;
mod places;
mod ratings;
mod schema;
mod titles;
mod type_tables;
mod words;
mod world;

use std::sync::Arc;

use arrow::array::RecordBatch;

use super::random::floor32;
use super::rows::{BATCH_ROWS_MAX, Rows};
use super::{GenerateError, TableSpec};
use fan_out::MovieTable;
use movie::Movie;
use schema::Table;
use world::{BLOCK, Owner, World};

/// A generated database; cheap to clone and to share between threads.
#[derive(Clone, Debug)]
pub(crate) struct Imdb {
    world: Arc<World>,
}

impl Imdb {
    /// The database of a scale and a seed. Counts all rows, but keeps none.
    pub(crate) fn new(scale: f64, seed: u64) -> Result<Self, GenerateError> {
        if !(scale > 0.0 && scale <= 100.0) {
            return Err(GenerateError::Scale { scale });
        }
        let imdb = Self { world: Arc::new(World::new(scale, seed)) };
        for table in Table::ALL {
            let rows = imdb.rows(table);
            if i32::try_from(rows).is_err() {
                return Err(GenerateError::TooManyRows { table: table.name(), rows });
            }
        }
        Ok(imdb)
    }

    /// The 21 tables in load order: referenced tables come earlier.
    pub(crate) fn tables(&self) -> Vec<TableSpec> {
        Table::ALL
            .into_iter()
            .map(|table| TableSpec {
                name: table.name(),
                schema: table.schema(),
                rows: self.rows(table),
            })
            .collect()
    }

    /// The statements that create the tables.
    pub(crate) fn schema_sql() -> &'static str {
        schema::SQL
    }

    /// How many independent parts `table` has; none if there is no such table.
    pub(crate) fn parts(&self, table: &str) -> usize {
        Table::named(table)
            .map_or(0, |table| self.owners(table).div_ceil(self.span(table)) as usize)
    }

    /// One part of `table`, as batches of at most 65,536 rows with ascending ids. The parts' ids
    /// ascend too. Empty if there is no such table or part.
    pub(crate) fn part(
        &self,
        table: &str,
        part: usize,
    ) -> Box<dyn Iterator<Item = RecordBatch> + Send> {
        let Some(table) = Table::named(table) else { return Box::new(std::iter::empty()) };
        if part >= self.parts(table.name()) {
            return Box::new(std::iter::empty());
        }
        let span = u64::from(self.span(table));
        let first = part as u64 * span;
        let last = (first + span).min(u64::from(self.owners(table)));
        Box::new(Part {
            world: Arc::clone(&self.world),
            table,
            next_owner: to_u32(first) + 1,
            last_owner: to_u32(last),
            next_row: self.world.rows_before(table, to_u32(first)) + 1,
            rows: Rows::new(table.schema()),
        })
    }

    fn rows(&self, table: Table) -> u64 {
        self.world.rows_before(table, self.owners(table))
    }

    /// The number of owners of the rows of `table`: titles, people, or the rows themselves.
    fn owners(&self, table: Table) -> u32 {
        self.world.owners_of(table)
    }

    /// How many owners one part covers: whole blocks, with some 200,000 rows together.
    fn span(&self, table: Table) -> u32 {
        let owners = self.owners(table);
        let per_owner = self.rows(table) as f64 / f64::from(owners.max(1));
        let blocks = floor32(200_000.0 / (per_owner.max(1e-3) * f64::from(BLOCK))).max(1);
        blocks.saturating_mul(BLOCK)
    }
}

fn to_u32(x: u64) -> u32 {
    u32::try_from(x).unwrap_or(u32::MAX)
}

/// One part of one table in the making.
struct Part {
    world: Arc<World>,
    table: Table,
    next_owner: u32,
    last_owner: u32,
    next_row: u64,
    rows: Rows,
}

impl Iterator for Part {
    type Item = RecordBatch;

    fn next(&mut self) -> Option<RecordBatch> {
        while self.next_owner <= self.last_owner {
            let owner = self.next_owner;
            let first_id = to_u32(self.next_row);
            let owned = match world::owner(self.table) {
                Owner::Itself => {
                    self.append(owner);
                    1
                }
                Owner::Person(rows) => {
                    let count = rows.count(&self.world, owner);
                    if self.rows.count() + count as usize > BATCH_ROWS_MAX {
                        return self.rows.take();
                    }
                    rows.append(&self.world, owner, first_id, count, &mut self.rows);
                    count
                }
                Owner::Movie(table) => {
                    let movie = Movie::new(&self.world, owner);
                    let count = fan_out::count(&self.world, &movie, table);
                    if self.rows.count() + count as usize > BATCH_ROWS_MAX {
                        return self.rows.take();
                    }
                    append_of_movie(&self.world, &movie, table, first_id, count, &mut self.rows);
                    count
                }
            };
            self.next_row += u64::from(owned);
            self.next_owner += 1;
            if self.rows.count() >= BATCH_ROWS_MAX {
                return self.rows.take();
            }
        }
        self.rows.take()
    }
}

impl Part {
    /// Appends the row with `id` of a table whose rows have no other owner.
    fn append(&mut self, id: u32) {
        let (world, rows) = (&*self.world, &mut self.rows);
        let entry = |names: &[&'static str]| names.get(id as usize - 1).copied().unwrap_or("");
        let name = match self.table {
            Table::KindType => entry(&type_tables::KIND_TYPE),
            Table::InfoType => entry(&type_tables::INFO_TYPE),
            Table::RoleType => entry(&type_tables::ROLE_TYPE),
            Table::LinkType => entry(&type_tables::LINK_TYPE),
            Table::CompanyType => entry(&type_tables::COMPANY_TYPE),
            Table::CompCastType => entry(&type_tables::COMP_CAST_TYPE),
            Table::Keyword => return keywords::keyword_row(world, id, rows),
            Table::CompanyName => return companies::company_name_row(world, id, rows),
            Table::CharName => return cast::char_name_row(world, id, rows),
            Table::Name => return people::name_row(world, id, rows),
            Table::Title => return titles::title_row(world, &Movie::new(world, id), rows),
            _ => return,
        };
        rows.int(id);
        rows.text(name);
    }
}

fn append_of_movie(
    world: &World,
    movie: &Movie,
    table: MovieTable,
    first_id: u32,
    count: u32,
    rows: &mut Rows,
) {
    match table {
        MovieTable::AkaTitle => links::aka_title_rows(world, movie, first_id, count, rows),
        MovieTable::CastInfo => cast::cast_info_rows(world, movie, first_id, count, rows),
        MovieTable::CompleteCast => links::complete_cast_rows(movie, first_id, count, rows),
        MovieTable::MovieCompanies => {
            let (makers, sellers) = fan_out::companies(movie);
            let known = count - makers - sellers;
            let counts = (makers + known, sellers);
            companies::movie_companies_rows(world, movie, first_id, counts, rows);
        }
        MovieTable::MovieInfo => infos::movie_info_rows(world, movie, first_id, rows),
        MovieTable::MovieInfoIdx => ratings::movie_info_idx_rows(movie, first_id, count, rows),
        MovieTable::MovieKeyword => {
            keywords::movie_keyword_rows(world, movie, first_id, count, rows);
        }
        MovieTable::MovieLink => links::movie_link_rows(world, movie, first_id, count, rows),
    }
}

#[cfg(test)]
mod tests;
