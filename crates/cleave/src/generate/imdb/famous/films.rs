//! The films, video films and the like that exist at every scale.

use super::super::movie::{Kind, Rank};
use super::{Famous, Part};

/// A popular film from the United States without further data, as a template.
pub(super) const FILM: Famous = Famous {
    title: "",
    kind: Kind::Film,
    year: 2008,
    popularity: 2.9,
    place: "USA",
    genres: &["Action", "Sci-Fi"],
    keywords: &[],
    companies: &[],
    infos: &[(8, "USA", ""), (4, "English", "")],
    cast: &[],
    rank: None,
    rating: 7.3,
    complete: &[],
    links: &[],
};

const MARVEL_KEYWORDS: &[&str] = &[
    "superhero",
    "marvel-comics",
    "marvel-cinematic-universe",
    "based-on-comic",
    "sequel",
    "violence",
    "fight",
];
const MARVEL_COMPANIES: &[(&str, u32, &str)] = &[
    ("Marvel Studios", 2, ""),
    ("Marvel Enterprises", 2, "(in association with)"),
    ("Paramount Pictures", 1, "(2008) (USA) (theatrical)"),
];
const STARK: &[Part] = &[
    part("Downey Jr., Robert", "Tony Stark", 1, ""),
    part("Downey Jr., Robert", "Iron Man", 1, "(voice)"),
    part("Anderson, Angie", "Herself", 2, "(uncredited)"),
    part("Bevan, Tim", "", 3, "(executive producer)"),
];
const HORROR_KEYWORDS: &[&str] =
    &["murder", "violence", "blood", "gore", "death", "female-nudity", "hospital", "revenge"];
const HORROR_CAST: &[Part] = &[
    part("Abrams, J.J.", "", 4, "(written by)"),
    part("Bergman, Barbara", "", 4, "(story)"),
    part("Xu, Bertrand", "Killer", 1, ""),
    part("Burton, Tim", "", 3, "(producer)"),
];

/// Films and the like.
pub(crate) const FAMOUS_FILMS: [Famous; 30] = [
    Famous {
        title: "Iron Man",
        keywords: MARVEL_KEYWORDS,
        companies: MARVEL_COMPANIES,
        cast: STARK,
        complete: &[(1, 4), (2, 4)],
        ..FILM
    },
    Famous {
        title: "Iron Man 2",
        year: 2010,
        keywords: MARVEL_KEYWORDS,
        companies: MARVEL_COMPANIES,
        cast: STARK,
        complete: &[(1, 3)],
        ..FILM
    },
    Famous {
        title: "Iron Man 3",
        year: 2013,
        keywords: MARVEL_KEYWORDS,
        companies: MARVEL_COMPANIES,
        cast: STARK,
        ..FILM
    },
    Famous {
        title: "The Avengers",
        year: 2012,
        rating: 8.2,
        keywords: MARVEL_KEYWORDS,
        companies: MARVEL_COMPANIES,
        cast: STARK,
        complete: &[(1, 3), (2, 3)],
        ..FILM
    },
    Famous {
        title: "The Avengers 2",
        year: 2015,
        popularity: 0.6,
        keywords: MARVEL_KEYWORDS,
        companies: MARVEL_COMPANIES,
        cast: STARK,
        ..FILM
    },
    Famous {
        title: "Disaster Movie",
        popularity: 1.3,
        genres: &["Comedy"],
        keywords: &["superhero", "parody", "fight", "violence"],
        companies: &[("Lionsgate", 2, "(presents)"), ("Lionsgate", 1, "(2008) (USA) (theatrical)")],
        infos: &[(8, "USA", ""), (105, "$20,000,000", ""), (3, "Comedy", "")],
        cast: &[part("Xu, Bertrand", "Iron Man", 1, "")],
        rank: Some(Rank::Bottom(3)),
        rating: 1.9,
        complete: &[(1, 3)],
        ..FILM
    },
    Famous {
        title: "Birdemic: Shock and Terror",
        year: 2010,
        popularity: 0.9,
        genres: &["Horror"],
        companies: &[("The Asylum", 2, ""), ("The Asylum", 1, "(2010) (USA) (DVD)")],
        infos: &[(8, "USA", ""), (105, "$10,000", ""), (3, "Horror", "")],
        rank: Some(Rank::Bottom(7)),
        rating: 1.8,
        ..FILM
    },
    Famous {
        title: "Shrek 2",
        year: 2004,
        popularity: 3.2,
        genres: &["Animation", "Comedy", "Family"],
        keywords: &["computer-animation", "sequel", "second-part", "talking-animal"],
        companies: &[
            ("DreamWorks Animation", 2, ""),
            ("DreamWorks Animation", 1, "(2004) (USA) (theatrical)"),
            ("DreamWorks Animation", 1, "(2004) (worldwide) (DVD)"),
        ],
        infos: &[
            (16, "USA:19 May 2004", ""),
            (16, "Japan:24 July 2004", ""),
            (8, "USA", ""),
            (4, "English", ""),
            (3, "Animation", ""),
        ],
        cast: &[
            part("Andrews, Julie", "Queen", 2, "(voice)"),
            part("Jolie, Angelina", "Princess", 2, "(voice) (uncredited)"),
        ],
        complete: &[(1, 4), (2, 4)],
        ..FILM
    },
    Famous {
        title: "Kung Fu Panda",
        genres: &["Animation", "Action", "Comedy"],
        keywords: &["computer-animation", "martial-arts", "hero", "kung-fu"],
        companies: &[
            ("DreamWorks Animation", 2, ""),
            ("DreamWorks Animation", 1, "(2008) (USA) (theatrical)"),
        ],
        infos: &[(16, "USA:6 June 2008", ""), (16, "Japan:26 July 2008", ""), (8, "USA", "")],
        cast: &[
            part("Jolie, Angelina", "Tiger", 2, "(voice)"),
            part("Anderson, Angie", "Herself", 2, "(voice)"),
        ],
        complete: &[(1, 4)],
        ..FILM
    },
    Famous {
        title: "Kung Fu Panda 2",
        year: 2011,
        genres: &["Animation", "Action", "Comedy"],
        keywords: &[
            "computer-animated-movie",
            "martial-arts",
            "hero",
            "hand-to-hand-combat",
            "sequel",
        ],
        companies: &[
            ("DreamWorks Animation", 2, ""),
            ("DreamWorks Animation", 1, "(2011) (USA) (theatrical)"),
        ],
        infos: &[(16, "USA:26 May 2011", ""), (16, "Japan:19 August 2011", ""), (8, "USA", "")],
        cast: &[
            part("Jolie, Angelina", "Tiger", 2, "(voice)"),
            part("Yost, Anne", "Additional Voices", 2, "(voice: English version)"),
        ],
        ..FILM
    },
    Famous {
        title: "One Piece: The Clockwork Fair",
        year: 2006,
        popularity: 0.9,
        place: "Japan",
        genres: &["Animation"],
        keywords: &["anime"],
        companies: &[
            ("Toei Animation Company", 2, ""),
            ("Toei Animation Company", 1, "(2006) (Japan) (theatrical)"),
        ],
        infos: &[(8, "Japan", ""), (16, "Japan:4 March 2006", "")],
        cast: &[
            part("Young, Angela", "Queen", 2, "(voice: English version)"),
            part("Yost, Anne", "Witch", 2, "(voice: English version)"),
        ],
        ..FILM
    },
    Famous {
        title: "Dragon Ball Z: The Long Return",
        year: 2007,
        popularity: 0.9,
        place: "Japan",
        genres: &["Animation"],
        keywords: &["anime", "martial-arts"],
        companies: &[
            ("Toei Animation Company", 2, ""),
            ("Toei Animation Company", 1, "(2007) (Japan) (TV)"),
        ],
        infos: &[(8, "Japan", ""), (16, "Japan:2 June 2007", "")],
        cast: &[part("Young, Angela", "Fairy", 2, "(voice: English version)")],
        ..FILM
    },
    Famous {
        title: "Saw II",
        year: 2005,
        popularity: 2.5,
        genres: &["Horror", "Thriller"],
        keywords: HORROR_KEYWORDS,
        companies: &[
            ("Lionsgate Films", 2, "(presents)"),
            ("Lionsgate", 1, "(2007) (USA) (Blu-ray)"),
        ],
        infos: &[(8, "USA", ""), (3, "Horror", ""), (3, "Thriller", "")],
        cast: HORROR_CAST,
        complete: &[(1, 4), (2, 4)],
        ..FILM
    },
    Famous {
        title: "Freddy and Jason Again",
        year: 2003,
        popularity: 2.3,
        genres: &["Horror", "Action"],
        keywords: HORROR_KEYWORDS,
        companies: &[
            ("New Line Cinema", 2, ""),
            ("Lionsgate Home Entertainment", 1, "(2008) (USA) (Blu-ray)"),
        ],
        infos: &[(8, "USA", ""), (3, "Horror", ""), (3, "Action", "")],
        cast: HORROR_CAST,
        complete: &[(1, 4)],
        ..FILM
    },
    Famous {
        title: "Vampire Academy of the Night",
        year: 2012,
        popularity: 1.2,
        genres: &["Horror"],
        keywords: HORROR_KEYWORDS,
        companies: &[("The Asylum", 2, "")],
        infos: &[(8, "USA", ""), (3, "Horror", "")],
        cast: HORROR_CAST,
        ..FILM
    },
    Famous {
        title: "Whisper Lake",
        year: 2010,
        popularity: 1.2,
        genres: &["Thriller"],
        keywords: HORROR_KEYWORDS,
        infos: &[(8, "USA", ""), (3, "Thriller", ""), (3, "Horror", "")],
        cast: HORROR_CAST,
        rating: 8.4,
        ..FILM
    },
    Famous {
        title: "Seven Days Online",
        year: 2007,
        popularity: 0.5,
        genres: &["Drama"],
        keywords: &["nerd", "loner", "alienation"],
        companies: &[
            ("YouTube", 1, "(2007) (worldwide) (internet)"),
            ("YouTube", 1, "(2008) (USA) (internet)"),
        ],
        infos: &[(8, "USA", ""), (16, "USA:1 June 2007", "(internet)"), (3, "Drama", "")],
        complete: &[(1, 4)],
        ..FILM
    },
    Famous {
        title: "The Analyst",
        year: 2003,
        popularity: 0.3,
        genres: &["Drama"],
        keywords: &["dignity", "loner"],
        companies: &[("Columbia Pictures", 2, ""), ("YouTube", 1, "(2009) (worldwide) (internet)")],
        infos: &[(8, "USA", ""), (16, "USA:9 May 2003", "(internet)"), (3, "Drama", "")],
        complete: &[(1, 4), (2, 4)],
        ..FILM
    },
    Famous {
        title: "Dressed in Darkness",
        year: 1981,
        popularity: 2.2,
        genres: &["Thriller"],
        keywords: &["murder", "blood", "based-on-novel"],
        companies: &[("Columbia Pictures", 2, "")],
        infos: &[(8, "USA", ""), (3, "Thriller", "")],
        cast: &[
            part("De Palma, Brian", "", 8, ""),
            part("Antonioni, Michelangelo", "Himself", 1, ""),
            part("Bergman, Barbara", "Nurse", 2, ""),
        ],
        complete: &[(1, 3)],
        ..FILM
    },
    Famous {
        title: "Champion",
        year: 1979,
        popularity: 1.5,
        genres: &["Drama", "Sport"],
        keywords: &["based-on-novel", "fight"],
        companies: &[("Metro-Goldwyn-Mayer (MGM)", 2, "(as Metro-Goldwyn-Mayer Pictures)")],
        infos: &[(8, "USA", ""), (16, "USA:4 April 1979", ""), (3, "Drama", "")],
        ..FILM
    },
    Famous {
        title: "Loser Takes Nothing",
        year: 2001,
        popularity: 1.2,
        genres: &["Comedy"],
        companies: &[("Columbia Pictures", 2, "")],
        infos: &[(8, "USA", ""), (16, "USA:3 August 2001", ""), (3, "Comedy", "")],
        ..FILM
    },
    Famous {
        title: "A Murder in Winter",
        year: 2011,
        popularity: 1.2,
        genres: &["Crime", "Thriller"],
        keywords: &["murder", "murder-in-title", "blood"],
        companies: &[
            ("Filmlance International AB", 2, "(co-production)"),
            ("Svensk Filmindustri (SF)", 1, "(2009) (Sweden) (DVD)"),
        ],
        infos: &[(8, "USA", ""), (8, "Sweden", ""), (3, "Crime", "")],
        rating: 6.9,
        ..FILM
    },
    Famous {
        title: "Mord am Fjord",
        year: 2009,
        popularity: 0.9,
        place: "Germany",
        genres: &["Crime"],
        keywords: &["murder", "murder-in-title", "violence"],
        companies: &[
            ("Bavaria Film", 2, "(co-production)"),
            ("Bavaria Film", 1, "(2009) (Germany) (TV)"),
        ],
        infos: &[(8, "Germany", ""), (8, "Norway", ""), (4, "German", ""), (3, "Crime", "")],
        rating: 6.8,
        complete: &[(1, 3), (2, 3)],
        ..FILM
    },
    Famous {
        title: "Undefeated in Sofia",
        year: 2011,
        popularity: 0.9,
        place: "Bulgaria",
        keywords: &["sequel", "martial-arts", "fight"],
        infos: &[(8, "Bulgaria", ""), (8, "USA", ""), (16, "USA:1 June 2011", "")],
        rating: 9.2,
        ..FILM
    },
    Famous {
        title: "The Money Man",
        year: 1998,
        popularity: 1.2,
        place: "Sweden",
        genres: &["Crime"],
        keywords: &["sequel", "revenge", "based-on-novel"],
        companies: &[
            ("Filmlance International AB", 2, ""),
            ("20th Century Fox Film Corporation", 1, "(1999) (USA) (video)"),
        ],
        infos: &[
            (8, "Sweden", ""),
            (8, "Germany", ""),
            (4, "Swedish", ""),
            (4, "English", ""),
            (3, "Crime", ""),
        ],
        complete: &[(1, 3), (2, 3)],
        links: &[(1, "Dressed in Darkness"), (2, "The Long Way Back")],
        ..FILM
    },
    Famous {
        title: "The Long Way Back",
        year: 2002,
        popularity: 1.2,
        place: "Germany",
        genres: &["Crime", "Drama"],
        keywords: &["sequel", "revenge"],
        companies: &[
            ("Constantin Film", 2, ""),
            ("Twentieth Century Fox Film Corporation", 1, "(2003) (Germany) (theatrical)"),
        ],
        infos: &[(8, "Germany", ""), (4, "German", ""), (3, "Crime", "")],
        complete: &[(1, 3), (2, 3)],
        links: &[(1, "The Money Man")],
        ..FILM
    },
    Famous {
        title: "Twelve Rounds in Winter",
        year: 2009,
        popularity: 1.2,
        place: "Germany",
        genres: &["Action", "Thriller"],
        keywords: &["murder", "violence", "blood"],
        companies: &[
            ("Bavaria Film", 2, "(co-production)"),
            ("Central Partnership", 1, "(2009) (Russia) (theatrical)"),
        ],
        infos: &[(8, "Germany", ""), (8, "USA", ""), (4, "German", "")],
        cast: &[part("Xu, Bertrand", "Himself", 1, "(voice) (uncredited)")],
        rating: 5.6,
        complete: &[(2, 3)],
        ..FILM
    },
    Famous {
        title: "The Silent Artist",
        year: 2011,
        popularity: 2.2,
        place: "France",
        genres: &["Drama", "Romance"],
        companies: &[("Gaumont", 2, "(co-production)"), ("Warner Bros. Pictures", 2, "(presents)")],
        infos: &[(8, "France", ""), (8, "Belgium", ""), (3, "Drama", "")],
        rank: Some(Rank::Top(118)),
        rating: 8.2,
        ..FILM
    },
    Famous {
        title: "Zorro and the Zebra",
        year: 1999,
        popularity: 1.2,
        genres: &["Family"],
        keywords: &["character-name-in-title", "number-in-title"],
        companies: &[("Universal Pictures", 2, ""), ("Bavaria Film", 1, "(2000) (Germany) (DVD)")],
        cast: &[
            part("Zemeckis, Robert", "", 8, ""),
            part("Xu, Bertrand", "Zorro", 1, ""),
            part("Bergman, Barbara", "Queen", 2, ""),
        ],
        ..FILM
    },
    Famous {
        title: "Gold of the Netherlands",
        year: 2006,
        popularity: 0.9,
        place: "Netherlands",
        genres: &["Drama"],
        keywords: &["character-name-in-title"],
        companies: &[
            ("RTL Entertainment", 2, ""),
            ("Warner Home Video", 1, "(2006) (Netherlands) (DVD)"),
        ],
        infos: &[(8, "Netherlands", ""), (3, "Drama", "")],
        ..FILM
    },
];

const fn part(
    person: &'static str,
    character: &'static str,
    role: u32,
    note: &'static str,
) -> Part {
    Part { person, character, role, note }
}
