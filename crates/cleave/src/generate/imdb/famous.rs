//! Titles and people that exist at every scale, with the rows that the benchmark's queries look for. They keep
//! selective queries from coming back empty on small databases. Besides the rows listed here they get rows like every
//! other popular title.

mod films;
mod series;

use super::World;
use super::fan_out::MovieTable;
use super::movie::{Kind, Rank};
use super::names::Gender;

pub(crate) use films::FAMOUS_FILMS;
pub(crate) use series::FAMOUS_SERIES;

/// A title that exists at every scale.
#[derive(Debug)]
pub(crate) struct Famous {
    pub(crate) title: &'static str,
    pub(crate) kind: Kind,
    pub(crate) year: u32,
    pub(crate) popularity: f64,
    pub(crate) place: &'static str,
    pub(crate) genres: &'static [&'static str],
    pub(crate) keywords: &'static [&'static str],
    /// Name, id in `company_type`, note.
    pub(crate) companies: &'static [(&'static str, u32, &'static str)],
    /// Id in `info_type`, text, note.
    pub(crate) infos: &'static [(u32, &'static str, &'static str)],
    pub(crate) cast: &'static [Part],
    pub(crate) rank: Option<Rank>,
    pub(crate) rating: f64,
    /// Ids in `comp_cast_type`: subject and status.
    pub(crate) complete: &'static [(u32, u32)],
    /// Id in `link_type`, title of another famous one.
    pub(crate) links: &'static [(u32, &'static str)],
}

/// Someone's part in a famous title.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) person: &'static str,
    /// Empty for crew members.
    pub(crate) character: &'static str,
    pub(crate) role: u32,
    pub(crate) note: &'static str,
}

/// Given rows of a famous title.
pub(crate) trait Known {
    fn count(&self, table: MovieTable) -> u32;
}

impl Known for Famous {
    fn count(&self, table: MovieTable) -> u32 {
        let known = match table {
            MovieTable::CastInfo => self.cast.len(),
            MovieTable::MovieKeyword => self.keywords.len(),
            MovieTable::MovieCompanies => self.companies.len(),
            MovieTable::MovieInfo => self.infos.len(),
            MovieTable::CompleteCast => self.complete.len(),
            MovieTable::MovieLink => self.links.len(),
            MovieTable::AkaTitle => 1,
            MovieTable::MovieInfoIdx => 0,
        };
        u32::try_from(known).unwrap_or(0)
    }
}

/// Someone who exists at every scale.
#[derive(Debug)]
pub(crate) struct FamousPerson {
    pub(crate) name: &'static str,
    pub(crate) gender: Gender,
}

const fn man(name: &'static str) -> FamousPerson {
    FamousPerson { name, gender: Gender::Male }
}

const fn woman(name: &'static str) -> FamousPerson {
    FamousPerson { name, gender: Gender::Female }
}

/// The people, each in the order of its range of ids.
pub(crate) const FAMOUS_PEOPLE: [FamousPerson; 14] = [
    man("Downey Jr., Robert"),
    man("De Palma, Brian"),
    man("Antonioni, Michelangelo"),
    man("Burton, Tim"),
    man("Bevan, Tim"),
    man("Abrams, J.J."),
    man("Zemeckis, Robert"),
    man("Xu, Bertrand"),
    woman("Andrews, Julie"),
    woman("Jolie, Angelina"),
    woman("Young, Angela"),
    woman("Yost, Anne"),
    woman("Bergman, Barbara"),
    woman("Anderson, Angie"),
];

/// The id of the famous film or series called `title`; the first title if there is none.
pub(crate) fn id_of(world: &World, title: &str) -> u32 {
    let series = (1..).zip(&FAMOUS_SERIES).find(|(_, famous)| famous.title == title);
    if let Some((id, _)) = series {
        return id;
    }
    let film = (0..).zip(&FAMOUS_FILMS).find(|(_, famous)| famous.title == title);
    film.map_or(1, |(place, _)| world.serial_titles + 1 + world.film_scatter.apply(place))
}
