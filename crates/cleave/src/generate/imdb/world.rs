//! The parameters of all rows, computed once: sizes, distributions, and for each block of titles and people how many
//! rows of each table come before it.

use super::super::random::{Scatter, Weighted, floor32, mix};
use super::super::rows::Rows;
use super::cast::{CHARACTERS_MIN, Roles};
use super::companies::{COMPANIES_MIN, Companies};
use super::fan_out::{self, MovieTable};
use super::genres::Genres;
use super::keywords::{KEYWORDS_MIN, Keywords};
use super::links::LinkTypes;
use super::movie::{Movie, Rank, serial_titles};
use super::people::{self, PEOPLE_MIN, People};
use super::places::PLACES;
use super::schema::Table;
use super::{infos, type_tables};

/// Row counts are known before each block of so many owners.
pub(crate) const BLOCK: u32 = 4_096;

const TITLES: f64 = 2_528_312.0;
const PEOPLE: f64 = 4_167_491.0;
const CHARACTERS: f64 = 3_140_339.0;
const COMPANIES: f64 = 234_997.0;
const KEYWORDS: f64 = 134_170.0;
/// Fewest titles a database has.
const TITLES_MIN: u32 = 400;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) titles: u32,
    /// Titles up to this id are series and episodes.
    pub(crate) serial_titles: u32,
    /// The order of the other titles, with the famous and the ranked ones first.
    pub(crate) film_scatter: Scatter,
    pub(crate) characters: u32,
    pub(crate) places: Places,
    pub(crate) genres: Genres,
    pub(crate) keywords: Keywords,
    pub(crate) companies: Companies,
    pub(crate) roles: Roles,
    pub(crate) people: People,
    pub(crate) tail_kinds: Weighted,
    pub(crate) link_types: LinkTypes,
    counts: Counts,
}

/// The distributions of countries.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) titles: Weighted,
    pub(crate) markets: Weighted,
}

#[derive(Debug, Default)]
struct Counts {
    keywords: u32,
    companies: u32,
    /// How many titles are in the charts.
    top: u32,
    bottom: u32,
    /// For each table of titles and of people: rows before each block, and all rows at the end.
    of_movies: [Vec<u64>; 8],
    of_people: [Vec<u64>; 2],
}

/// The owner of a table's rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    /// None: the table has one row for each of its ids.
    Itself,
    Movie(MovieTable),
    Person(PersonTable),
}

/// A table whose rows belong to people.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PersonTable {
    AkaName,
    PersonInfo,
}

impl PersonTable {
    /// How many rows the person with `id` has.
    pub(crate) fn count(self, world: &World, id: u32) -> u32 {
        match self {
            Self::AkaName => people::alias_count(world, id),
            Self::PersonInfo => people::fact_count(world, id),
        }
    }

    pub(crate) fn append(self, world: &World, id: u32, first_id: u32, count: u32, rows: &mut Rows) {
        match self {
            Self::AkaName => people::alias_rows(world, id, first_id, count, rows),
            Self::PersonInfo => people::fact_rows(world, id, first_id, count, rows),
        }
    }
}

/// The owner of the rows of `table`.
pub(crate) fn owner(table: Table) -> Owner {
    match table {
        Table::AkaName => Owner::Person(PersonTable::AkaName),
        Table::PersonInfo => Owner::Person(PersonTable::PersonInfo),
        Table::AkaTitle => Owner::Movie(MovieTable::AkaTitle),
        Table::MovieKeyword => Owner::Movie(MovieTable::MovieKeyword),
        Table::MovieCompanies => Owner::Movie(MovieTable::MovieCompanies),
        Table::MovieInfoIdx => Owner::Movie(MovieTable::MovieInfoIdx),
        Table::CompleteCast => Owner::Movie(MovieTable::CompleteCast),
        Table::MovieLink => Owner::Movie(MovieTable::MovieLink),
        Table::MovieInfo => Owner::Movie(MovieTable::MovieInfo),
        Table::CastInfo => Owner::Movie(MovieTable::CastInfo),
        _ => Owner::Itself,
    }
}

impl World {
    pub(crate) fn new(scale: f64, seed: u64) -> Self {
        let seed = mix(seed, 0x636C_6561_7665);
        let size = |full: f64, least: u32| floor32(full * scale + 0.5).max(least);
        let titles = size(TITLES, TITLES_MIN);
        let serial_titles = serial_titles(titles);
        let characters = size(CHARACTERS, CHARACTERS_MIN);
        let keywords = size(KEYWORDS, KEYWORDS_MIN);
        let companies = size(COMPANIES, COMPANIES_MIN);
        let mut world = Self {
            seed,
            titles,
            serial_titles,
            film_scatter: Scatter::new(titles - serial_titles, seed),
            characters,
            places: Places {
                titles: Weighted::new(PLACES.iter().map(|place| place.titles)),
                markets: Weighted::new(PLACES.iter().map(|place| place.market)),
            },
            genres: Genres::new(),
            keywords: Keywords::new(keywords),
            companies: Companies::new(companies),
            roles: Roles::new(characters),
            people: People::new(size(PEOPLE, PEOPLE_MIN), seed),
            tail_kinds: infos::tail_kinds(),
            link_types: LinkTypes::new(),
            counts: Counts {
                keywords,
                companies,
                top: floor32(250.0 * scale + 0.5).max(5),
                bottom: floor32(10.0 * scale + 0.5).max(3),
                ..Counts::default()
            },
        };
        world.count_rows();
        world
    }

    /// The chart place of the `place`th title that is not famous.
    pub(crate) fn rank(&self, place: u32) -> Option<Rank> {
        let (top, bottom) = (self.counts.top, self.counts.bottom);
        match place {
            _ if place < top => Some(Rank::Top(place % 250 + 1)),
            _ if place < top + bottom => Some(Rank::Bottom((place - top) % 10 + 1)),
            _ => None,
        }
    }

    /// How many owners the rows of a table with `owner` have.
    pub(crate) fn owners_of(&self, table: Table) -> u32 {
        let len = |names: &[&str]| u32::try_from(names.len()).unwrap_or(0);
        match table {
            Table::KindType => len(&type_tables::KIND_TYPE),
            Table::InfoType => len(&type_tables::INFO_TYPE),
            Table::RoleType => len(&type_tables::ROLE_TYPE),
            Table::LinkType => len(&type_tables::LINK_TYPE),
            Table::CompanyType => len(&type_tables::COMPANY_TYPE),
            Table::CompCastType => len(&type_tables::COMP_CAST_TYPE),
            Table::Keyword => self.counts.keywords,
            Table::CompanyName => self.counts.companies,
            Table::CharName => self.characters,
            Table::Name | Table::AkaName | Table::PersonInfo => self.people.count,
            _ => self.titles,
        }
    }

    /// How many rows of `table` the first `owners` owners have: whole blocks, or all.
    pub(crate) fn rows_before(&self, table: Table, owners: u32) -> u64 {
        let sums = match owner(table) {
            Owner::Itself => return u64::from(owners),
            Owner::Movie(table) => &self.counts.of_movies[table as usize],
            Owner::Person(table) => &self.counts.of_people[table as usize],
        };
        sums.get(owners.div_ceil(BLOCK) as usize).copied().unwrap_or(0)
    }

    /// Counts the rows of all blocks, on all processors.
    fn count_rows(&mut self) {
        let of_movies = self.sums_by_block(self.titles, |world, id| {
            let movie = Movie::new(world, id);
            MovieTable::ALL.map(|table| fan_out::count(world, &movie, table))
        });
        let of_people = self.sums_by_block(self.people.count, |world, id| {
            [PersonTable::AkaName, PersonTable::PersonInfo].map(|table| table.count(world, id))
        });
        self.counts.of_movies = of_movies;
        self.counts.of_people = of_people;
    }

    fn sums_by_block<const N: usize>(
        &self,
        owners: u32,
        count: impl Fn(&Self, u32) -> [u32; N] + Sync,
    ) -> [Vec<u64>; N] {
        let blocks = owners.div_ceil(BLOCK);
        let sum = |block: u32| {
            let first = block * BLOCK + 1;
            let last = (first + BLOCK - 1).min(owners);
            (first..=last).fold([0u64; N], |mut sums, id| {
                for (sum, count) in sums.iter_mut().zip(count(self, id)) {
                    *sum += u64::from(count);
                }
                sums
            })
        };
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(16);
        let threads = u32::try_from(threads).unwrap_or(1);
        let per_thread = blocks.div_ceil(threads).max(1);
        let sums: Vec<[u64; N]> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|thread| {
                    let range = thread * per_thread..((thread + 1) * per_thread).min(blocks);
                    let sum = &sum;
                    scope.spawn(move || range.map(sum).collect::<Vec<_>>())
                })
                .collect();
            workers
                .into_iter()
                .flat_map(|worker| match worker.join() {
                    Ok(sums) => sums,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect()
        });
        std::array::from_fn(|table| {
            let mut before = 0;
            let mut column = vec![0];
            for block in &sums {
                before += block[table];
                column.push(before);
            }
            column
        })
    }
}
