//! Countries of films, companies and premieres: their names, codes and languages, and how much each of them makes, owns
//! and shows.

/// A country in the database's spelling.
pub(crate) struct Place {
    /// In `movie_info` and in notes.
    pub(crate) name: &'static str,
    /// In `company_name.country_code`.
    pub(crate) code: &'static str,
    pub(crate) language: &'static str,
    /// Weight of titles from here.
    pub(crate) titles: f64,
    /// Weight of companies here.
    pub(crate) companies: f64,
    /// Weight of a film's foreign releases and distributors here.
    pub(crate) market: f64,
}

const fn place(
    name: &'static str,
    code: &'static str,
    language: &'static str,
    titles: f64,
    companies: f64,
    market: f64,
) -> Place {
    Place { name, code, language, titles, companies, market }
}

/// The place of films from the United States, first in [`PLACES`].
pub(crate) const USA: usize = 0;
/// Japan's place in [`PLACES`].
pub(crate) const JAPAN: usize = 5;

/// All countries, the large ones first.
pub(crate) const PLACES: [Place; 76] = [
    place("USA", "[us]", "English", 0.0, 36.0, 23.0),
    place("UK", "[gb]", "English", 8.2, 8.5, 8.0),
    place("France", "[fr]", "French", 8.6, 7.0, 9.5),
    place("Canada", "[ca]", "English", 4.2, 4.2, 5.0),
    place("Germany", "[de]", "German", 5.8, 6.6, 14.0),
    place("Japan", "[jp]", "Japanese", 6.8, 3.6, 8.8),
    place("Italy", "[it]", "Italian", 5.4, 4.4, 4.6),
    place("Spain", "[es]", "Spanish", 4.2, 4.0, 4.4),
    place("India", "[in]", "Hindi", 7.4, 3.0, 0.9),
    place("Australia", "[au]", "English", 2.4, 2.5, 4.8),
    place("Mexico", "[mx]", "Spanish", 3.3, 1.4, 2.0),
    place("Brazil", "[br]", "Portuguese", 2.8, 1.8, 3.4),
    place("Netherlands", "[nl]", "Dutch", 1.9, 1.5, 5.2),
    place("Philippines", "[ph]", "Filipino", 2.4, 0.8, 0.9),
    place("Greece", "[gr]", "Greek", 1.5, 0.9, 2.8),
    place("Belgium", "[be]", "French", 1.2, 1.0, 1.8),
    place("Hong Kong", "[hk]", "Cantonese", 1.9, 0.9, 1.4),
    place("Sweden", "[se]", "Swedish", 2.2, 1.1, 3.2),
    place("Finland", "[fi]", "Finnish", 1.2, 0.7, 3.3),
    place("Argentina", "[ar]", "Spanish", 1.9, 1.1, 3.2),
    place("Denmark", "[dk]", "Danish", 1.5, 0.8, 2.2),
    place("Russia", "[ru]", "Russian", 0.8, 0.5, 0.8),
    place("Austria", "[at]", "German", 1.2, 0.8, 0.8),
    place("South Korea", "[kr]", "Korean", 1.5, 0.7, 1.2),
    place("Switzerland", "[ch]", "German", 1.1, 0.8, 0.9),
    place("Turkey", "[tr]", "Turkish", 1.7, 0.6, 1.0),
    place("China", "[cn]", "Mandarin", 1.4, 0.7, 0.5),
    place("Poland", "[pl]", "Polish", 1.5, 0.6, 1.0),
    place("Portugal", "[pt]", "Portuguese", 1.1, 0.5, 1.4),
    place("Ireland", "[ie]", "English", 0.6, 0.5, 0.9),
    place("Hungary", "[hu]", "Hungarian", 1.1, 0.4, 1.5),
    place("Taiwan", "[tw]", "Mandarin", 0.6, 0.4, 0.8),
    place("Norway", "[no]", "Norwegian", 0.8, 0.5, 1.8),
    place("New Zealand", "[nz]", "English", 0.5, 0.4, 0.6),
    place("Israel", "[il]", "Hebrew", 0.6, 0.4, 0.6),
    place("Nigeria", "[ng]", "English", 0.5, 0.3, 0.05),
    place("South Africa", "[za]", "English", 0.4, 0.4, 0.4),
    place("Czech Republic", "[cz]", "Czech", 0.8, 0.4, 0.9),
    place("Indonesia", "[id]", "Indonesian", 0.5, 0.3, 0.2),
    place("Chile", "[cl]", "Spanish", 0.5, 0.3, 0.3),
    place("Czechoslovakia", "[cshh]", "Czech", 0.9, 0.1, 0.1),
    place("Bulgaria", "[bg]", "Bulgarian", 0.5, 0.2, 0.3),
    place("Iran", "[ir]", "Persian", 0.7, 0.3, 0.1),
    place("Romania", "[ro]", "Romanian", 0.5, 0.2, 0.3),
    place("Colombia", "[co]", "Spanish", 0.4, 0.2, 0.3),
    place("Singapore", "[sg]", "English", 0.2, 0.2, 1.1),
    place("Thailand", "[th]", "Thai", 0.4, 0.2, 0.4),
    place("Egypt", "[eg]", "Arabic", 0.6, 0.2, 0.2),
    place("Croatia", "[hr]", "Croatian", 0.3, 0.2, 0.2),
    place("Soviet Union", "[suhh]", "Russian", 2.2, 0.2, 0.3),
    place("Yugoslavia", "[xyu]", "Serbo-Croatian", 1.1, 0.1, 0.1),
    place("Venezuela", "[ve]", "Spanish", 0.4, 0.2, 0.2),
    place("Malaysia", "[my]", "Malay", 0.3, 0.2, 0.3),
    place("Pakistan", "[pk]", "Urdu", 0.4, 0.2, 0.05),
    place("Iceland", "[is]", "Icelandic", 0.2, 0.2, 0.9),
    place("Serbia", "[rs]", "Serbian", 0.2, 0.2, 0.2),
    place("Ukraine", "[ua]", "Ukrainian", 0.3, 0.2, 0.2),
    place("Cuba", "[cu]", "Spanish", 0.3, 0.1, 0.05),
    place("Estonia", "[ee]", "Estonian", 0.4, 0.1, 0.3),
    place("Puerto Rico", "[pr]", "Spanish", 0.3, 0.1, 0.05),
    place("Peru", "[pe]", "Spanish", 0.3, 0.1, 0.2),
    place("Slovenia", "[si]", "Slovenian", 0.2, 0.1, 0.3),
    place("Georgia", "[ge]", "Georgian", 0.2, 0.1, 0.05),
    place("United Arab Emirates", "[ae]", "Arabic", 0.1, 0.1, 0.2),
    place("Morocco", "[ma]", "Arabic", 0.2, 0.1, 0.05),
    place("Slovakia", "[sk]", "Slovak", 0.2, 0.1, 0.2),
    place("Uruguay", "[uy]", "Spanish", 0.1, 0.1, 0.2),
    place("Latvia", "[lv]", "Latvian", 0.2, 0.1, 0.1),
    place("Lithuania", "[lt]", "Lithuanian", 0.1, 0.1, 0.2),
    place("Lebanon", "[lb]", "Arabic", 0.1, 0.1, 0.1),
    place("Luxembourg", "[lu]", "French", 0.1, 0.1, 0.1),
    place("Kazakhstan", "[kz]", "Kazakh", 0.1, 0.1, 0.1),
    place("West Germany", "[de]", "German", 3.6, 0.0, 0.9),
    place("East Germany", "[ddde]", "German", 0.5, 0.1, 0.1),
    place("Vietnam", "[vn]", "Vietnamese", 0.1, 0.1, 0.05),
    place("Sri Lanka", "[lk]", "Sinhala", 0.1, 0.1, 0.02),
];

/// The place in [`PLACES`] called `name`; the United States if there is none.
pub(crate) fn place_named(name: &str) -> usize {
    PLACES.iter().position(|place| place.name == name).unwrap_or(USA)
}
