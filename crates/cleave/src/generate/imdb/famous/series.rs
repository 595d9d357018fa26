//! The series that exist at every scale.

use super::super::movie::Kind;
use super::Famous;
use super::films::FILM;

/// A popular series without further data, as a template.
const SERIES: Famous = Famous {
    kind: Kind::Series,
    popularity: 1.3,
    genres: &["Reality-TV"],
    infos: &[(8, "USA", ""), (3, "Reality-TV", "")],
    rating: 3.3,
    ..FILM
};

/// Series; they have no episodes.
pub(crate) const FAMOUS_SERIES: [Famous; 6] = [
    Famous {
        title: "A Double Shot at Fame",
        companies: &[("495 Productions", 2, ""), ("495 Productions", 1, "(2008) (USA) (TV)")],
        links: &[(1, "A Shot at Fame"), (2, "One More Shot at Fame"), (9, "Dressed in Darkness")],
        complete: &[(1, 3)],
        ..SERIES
    },
    Famous {
        title: "A Shot at Fame",
        year: 2007,
        companies: &[("495 Productions", 2, "")],
        rating: 2.7,
        links: &[(2, "A Double Shot at Fame")],
        ..SERIES
    },
    Famous {
        title: "One More Shot at Fame",
        year: 2007,
        companies: &[("495 Productions", 2, "(presents)")],
        rating: 2.4,
        links: &[(1, "A Double Shot at Fame")],
        ..SERIES
    },
    Famous {
        title: "De Gouden Kamer",
        year: 2007,
        place: "Netherlands",
        companies: &[
            ("RTL Entertainment", 2, ""),
            ("RTL Entertainment", 1, "(2007) (Netherlands) (TV)"),
        ],
        infos: &[(8, "Netherlands", ""), (4, "Dutch", "")],
        rating: 2.3,
        links: &[(1, "De Zilveren Kamer"), (2, "A Shot at Fame")],
        ..SERIES
    },
    Famous {
        title: "De Zilveren Kamer",
        year: 2007,
        place: "Netherlands",
        companies: &[("RTL Entertainment", 2, "")],
        infos: &[(8, "Netherlands", ""), (4, "Dutch", "")],
        rating: 2.9,
        links: &[(2, "De Gouden Kamer")],
        ..SERIES
    },
    Famous {
        title: "Batman Tomorrow",
        year: 1999,
        genres: &["Animation", "Action"],
        keywords: &["sequel", "superhero", "based-on-comic", "character-name-in-title"],
        companies: &[
            ("Warner Bros. Television", 2, ""),
            ("20th Century Fox Television", 1, "(1999) (USA) (TV)"),
            ("Film Roman Productions", 2, ""),
        ],
        infos: &[(8, "USA", ""), (8, "Germany", ""), (4, "English", ""), (4, "German", "")],
        rating: 7.9,
        complete: &[(1, 3), (2, 3)],
        links: &[(1, "Dressed in Darkness"), (2, "The Money Man"), (9, "Dressed in Darkness")],
        ..SERIES
    },
];
