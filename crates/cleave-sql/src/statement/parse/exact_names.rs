//! Names with a schema beside a session's temporary objects: the text of a statement in; out, which names mean the
//! permanent object in it, and the text to read in its place.
//!
//! A temporary object hides a permanent one of its name, but not from `public.a`; `pg_temp.a` is never a permanent one.
//! A catalog version has one object for each name. So this module decides, for a statement, which of the two its
//! session's catalog version has under the plain name ([`ExactNames`]), and leaves the schemas out of the text. If a
//! statement names both, the plain name is that of the one that it changes, or else the temporary one, and the other
//! gets a name of its own ([`key_of`]):
//!
//! ```text
//!  INSERT INTO public.a SELECT * FROM a  ─▶  a is the permanent one: INSERT INTO public.a SELECT * FROM "pg_temp⟨a⟩"
//!  SELECT * FROM a JOIN public.a p …     ─▶  a is the temporary one: SELECT * FROM a JOIN "public⟨a⟩" p …
//! ```
//!
//! Only sessions with temporary objects and statements that say `pg_temp` come here.
//!
//! Source: PostgreSQL's manual, `search_path` and CREATE TABLE.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use cleave_catalog::error::{Error, Fault, Result};
use cleave_catalog::identifiers::{
    KEY_MARK, SCHEMA, TEMPORARY_SCHEMA, in_quotes, key_of, schema_and_name, unqualified,
};
use datafusion::sql::sqlparser::ast::{self, ObjectName, Statement, TableFactor, Visitor};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::Cursor;
use super::dialect::read_text;
use super::tokens::{is_solid, is_word, tokenize};
use crate::statement::names::fold;
use crate::visiting::visit;

/// What the names of a statement mean.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExactNames {
    /// Names of temporary objects that are those of the permanent ones here.
    pub permanent: BTreeSet<String>,
    /// Names that no object has here: `pg_temp.a` without a temporary object of that name.
    pub absent: BTreeSet<String>,
    /// The text has names that this module has given.
    pub has_keys: bool,
    /// The text to read in the place of the statement's; None: its own.
    pub text: Option<String>,
}

/// Whether a statement of this text may have names that [`exact_names`] decides; `has_temporary`: the session has
/// temporary objects.
#[must_use]
pub fn may_need_exact_names(text: &str, has_temporary: bool) -> bool {
    // Of all statements; an underscore is rare, and found fast.
    let says_temporary = text.match_indices('_').any(|(place, _)| {
        let word = place.checked_sub(2).and_then(|first| text.get(first..first + 7));
        word.is_some_and(|word| word.eq_ignore_ascii_case(TEMPORARY_SCHEMA))
    });
    let says = |word: &str| {
        let mut places = text.as_bytes().windows(word.len());
        places.any(|place| place.eq_ignore_ascii_case(word.as_bytes()))
    };
    says_temporary || has_temporary && (says(SCHEMA) || says("create"))
}

/// What the names of the statement `text` mean, where `is_temporary` tells the names of temporary objects.
///
/// # Errors
/// [`Fault::TableDefinition`] for a temporary object in `public`.
pub fn exact_names(text: &str, is_temporary: &dyn Fn(&str) -> bool) -> Result<ExactNames> {
    let Ok(mut tokens) = tokenize(&PostgreSqlDialect {}, text) else {
        return Ok(ExactNames::default());
    };
    tokens.retain(is_solid);
    let tokens = Tokens::of(text, tokens);
    let created = tokens.created();
    let mut exact = ExactNames::default();
    let mut meant = BTreeSet::new();
    let mut edits = Edits::default();
    let named = tokens.qualified();
    for named in &named {
        let is_created = created.as_ref().is_some_and(|created| created.place == named.place);
        match (named.is_public, is_temporary(&named.name)) {
            (true, is_temporary) => {
                if is_created && created.as_ref().is_some_and(|created| created.is_temporary) {
                    return Err(Error::Invalid {
                        message: "cannot create temporary relation in non-temporary schema"
                            .to_owned(),
                        fault: Fault::TableDefinition,
                        position: None,
                    });
                }
                if is_temporary {
                    meant.insert(named.name.clone());
                }
            }
            (false, is_temporary) => {
                edits.put(tokens.range(named.first, named.place), String::new());
                if is_created {
                    let keyword = created.as_ref().filter(|created| !created.is_temporary);
                    if let Some(keyword) = keyword.map(|created| created.keyword) {
                        edits.put(tokens.range(keyword, keyword), "TEMP ".to_owned());
                    }
                } else if !is_temporary {
                    exact.absent.insert(named.name.clone());
                }
            }
        }
    }
    let texts = tokens.texts();
    for text in &texts {
        match (text.is_public, is_temporary(&text.name)) {
            (Some(true), true) => drop(meant.insert(text.name.clone())),
            (Some(false), false) => drop(exact.absent.insert(text.name.clone())),
            _ => {}
        }
    }
    let made = created.filter(|created| !created.is_temporary);
    let made = made.filter(|created| !created.is_of_session);
    let made = made.map(|created| (created.name, created.place));
    meant.extend(made.iter().map(|(name, _)| name.clone()).filter(|name| is_temporary(name)));
    if !meant.is_empty() {
        let found = tokens.occurrences(text);
        for name in meant {
            let made = made.as_ref().filter(|(made, _)| *made == name).map(|(_, place)| *place);
            let mut own = texts.iter().filter(|text| text.name == name && text.is_reference);
            let has_text = own.any(|text| text.is_public != Some(true));
            let about = (name.as_str(), has_text);
            found.decide(about, (&tokens, made), &named, (&mut exact, &mut edits));
        }
    }
    for text in texts.iter().filter(|text| text.is_reference && is_temporary(&text.name)) {
        let is_permanent = text.is_public == Some(true);
        if is_permanent != exact.permanent.contains(&text.name) {
            let schema = if is_permanent { SCHEMA } else { TEMPORARY_SCHEMA };
            let written = in_quotes(&key_of(schema, &text.name)).replace('\'', "''");
            let (start, _) = tokens.range(text.place, text.place);
            edits.put((start, tokens.end(text.place)), format!("'{written}'"));
        }
    }
    exact.text = edits.applied(text);
    exact.has_keys = exact.text.as_deref().unwrap_or(text).contains(KEY_MARK);
    Ok(exact)
}

/// The tokens of a text, with their places in it.
struct Tokens {
    tokens: Vec<TokenWithSpan>,
    places: Vec<(usize, usize)>,
}

/// A name with a schema: the numbers of its first token and of the name's own.
struct Qualified {
    first: usize,
    place: usize,
    name: String,
    is_public: bool,
    /// A column's name follows.
    is_of_column: bool,
}

/// A text that is a name.
struct Text {
    /// The number of its token.
    place: usize,
    name: String,
    /// None: it has no schema.
    is_public: Option<bool>,
    /// It stands where only a name can.
    is_reference: bool,
}

/// Functions whose first argument names a relation.
const OF_NAMES: [&str; 4] = ["currval", "nextval", "setval", "to_regclass"];

/// What a statement creates.
struct Created {
    /// The number of the token of its name.
    place: usize,
    name: String,
    /// The number of the key word that TEMP stands before.
    keyword: usize,
    is_temporary: bool,
    /// Its name is in `pg_temp`.
    is_of_session: bool,
}

impl Tokens {
    fn of(text: &str, tokens: Vec<TokenWithSpan>) -> Self {
        let mut cursor = Cursor::new(text);
        let places = tokens
            .iter()
            .map(|token| (cursor.offset_of(token.span.start), cursor.offset_of(token.span.end)));
        let places = places.collect();
        Self { tokens, places }
    }

    fn token(&self, place: usize) -> Option<&Token> {
        self.tokens.get(place).map(|token| &token.token)
    }

    fn word(&self, place: usize) -> Option<String> {
        match self.token(place)? {
            Token::Word(word) if word.quote_style.is_none() => {
                Some(word.value.to_ascii_lowercase())
            }
            Token::Word(word) => Some(word.value.clone()),
            _ => None,
        }
    }

    fn is_key_word(&self, place: usize, words: &[&str]) -> bool {
        let token = self.tokens.get(place);
        token.is_some_and(|token| words.iter().any(|word| is_word(token, word)))
    }

    /// From the start of one token to that of another.
    fn range(&self, first: usize, end: usize) -> (usize, usize) {
        let start = |place: usize| self.places.get(place).map_or(0, |(start, _)| *start);
        (start(first), start(end))
    }

    fn end(&self, place: usize) -> usize {
        self.places.get(place).map_or(0, |(_, end)| *end)
    }

    fn qualified(&self) -> Vec<Qualified> {
        let is_period = |place: usize| self.token(place) == Some(&Token::Period);
        let mut found = Vec::new();
        for schema in 0..self.tokens.len() {
            let Some(word) = self.word(schema) else { continue };
            let is_public = word == SCHEMA;
            if !is_public && word != TEMPORARY_SCHEMA || !is_period(schema + 1) {
                continue;
            }
            // Behind a period only that of a database.
            let is_behind = schema.checked_sub(1).is_some_and(is_period);
            let database = schema.checked_sub(2).filter(|_| is_behind);
            if is_behind && database.and_then(|place| self.word(place)).is_none() {
                continue;
            }
            let place = schema + 2;
            let Some(name) = self.word(place) else { continue };
            let first = database.unwrap_or(schema);
            let is_of_column = is_period(place + 1);
            found.push(Qualified { first, place, name, is_public, is_of_column });
        }
        found
    }

    /// The texts that are names.
    fn texts(&self) -> Vec<Text> {
        let text = |place: usize| {
            let Token::SingleQuotedString(written) = self.token(place)? else { return None };
            let is_cast = self.token(place + 1) == Some(&Token::DoubleColon)
                && self.is_key_word(place + 2, &["regclass"]);
            let is_argument = place >= 2
                && self.token(place - 1) == Some(&Token::LParen)
                && self.is_key_word(place - 2, &OF_NAMES);
            let is_reference = is_cast || is_argument;
            let (is_public, name) = match schema_and_name(written) {
                Some((schema, name)) if schema == SCHEMA => (Some(true), name),
                Some((schema, name)) if schema == TEMPORARY_SCHEMA => (Some(false), name),
                Some(_) => return None,
                None if is_reference => (None, unqualified(written)?),
                None => return None,
            };
            Some(Text { place, name, is_public, is_reference })
        };
        (0..self.tokens.len()).filter_map(text).collect()
    }

    /// The table, view or sequence that the statement creates.
    fn created(&self) -> Option<Created> {
        let is_temp = |place: usize| self.is_key_word(place, &["temp", "temporary"]);
        let (keyword, is_temporary, mut place);
        if self.is_key_word(0, &["create"]) {
            let kinds = ["table", "view", "sequence"];
            keyword = (1..7).find(|place| self.is_key_word(*place, &kinds))?;
            is_temporary = (1..keyword).any(is_temp);
            place = keyword + 1;
            if self.is_key_word(place, &["if"]) {
                place += 3;
            }
            // RECURSIVE stands behind TEMP.
            let before = keyword - 1;
            if self.is_key_word(before, &["recursive"]) {
                return self.created_at(before, is_temporary, place);
            }
        } else {
            let is_into = |place: &usize| {
                self.is_key_word(*place, &["into"])
                    && !self.is_key_word(place.wrapping_sub(1), &["insert"])
            };
            let into = (0..self.tokens.len()).find(is_into)?;
            keyword = into + 1;
            is_temporary = is_temp(keyword);
            place = keyword + usize::from(is_temporary);
            if self.is_key_word(place, &["table"]) {
                place += 1;
            }
        }
        self.created_at(keyword, is_temporary, place)
    }

    fn created_at(&self, keyword: usize, is_temporary: bool, place: usize) -> Option<Created> {
        let (mut place, mut schema) = (place, None);
        let mut name = self.word(place)?;
        while self.token(place + 1) == Some(&Token::Period) {
            schema = Some(name);
            place += 2;
            name = self.word(place)?;
        }
        let is_of_session = schema.is_some_and(|schema| schema == TEMPORARY_SCHEMA);
        Some(Created { place, name, keyword, is_temporary, is_of_session })
    }

    /// The number of the token that begins at this line and column.
    fn at(&self, line: u64, column: u64) -> Option<usize> {
        let start = |token: &TokenWithSpan| (token.span.start.line, token.span.start.column);
        self.tokens.binary_search_by_key(&(line, column), start).ok()
    }

    /// The tables that the statement names.
    fn occurrences(&self, text: &str) -> Occurrences {
        let mut found = Occurrences::default();
        let read = |text: &str| read_text(text, |parser| parser.parse_statement());
        // A query within what the parser crate does not read, as in COPY, is read alone, at its place.
        let statement = read(text).or_else(|error| {
            let begins = ["select", "with", "values", "insert", "update", "delete"];
            let first = (1..self.tokens.len()).find(|place| self.is_key_word(*place, &begins));
            let first = first.ok_or(error)?;
            let (start, _) = self.range(first, first);
            let end = self.closing(first).map_or(text.len(), |place| self.range(place, place).0);
            let blank = |letter: char| if letter == '\n' { '\n' } else { ' ' };
            let before = text.get(..start).unwrap_or_default().chars().map(blank);
            let own = text.get(start..end).unwrap_or_default();
            read(&before.chain(own.chars()).collect::<String>())
        });
        if let Ok(statement) = statement {
            let flow: ControlFlow<()> = visit(&statement, &mut found);
            debug_assert!(flow.is_continue(), "nothing stops the visit");
        }
        found
    }

    /// The parenthesis that closes the one before the token `first`.
    fn closing(&self, first: usize) -> Option<usize> {
        first.checked_sub(1).filter(|before| self.token(*before) == Some(&Token::LParen))?;
        let mut depth = 1_usize;
        (first..self.tokens.len()).find(|place| {
            match self.token(*place) {
                Some(Token::LParen) => depth += 1,
                Some(Token::RParen) => depth -= 1,
                _ => {}
            }
            depth == 0
        })
    }
}

/// A place where a statement names a table.
struct Occurrence {
    /// Its parts.
    parts: Vec<String>,
    /// Line and column of the first and of the last.
    first: (u64, u64),
    last: (u64, u64),
    is_of_with: bool,
}

/// Where a statement names tables.
#[derive(Default)]
struct Occurrences {
    found: Vec<Occurrence>,
    /// Those with an alias, and the one that the statement changes, by their places.
    aliased: BTreeSet<(u64, u64)>,
    targets: BTreeSet<(u64, u64)>,
    /// Names that stand more than once in one FROM, without an alias.
    repeated: BTreeSet<String>,
    /// Names of the queries of WITH around the place of the visit.
    with: Vec<Vec<String>>,
}

impl Occurrence {
    /// Whether it is the permanent object `name`; None: it is another name.
    fn is_permanent(&self, name: &str) -> Option<bool> {
        let (last, before) = self.parts.split_last()?;
        if last != name {
            return None;
        }
        match before.last() {
            None => (!self.is_of_with).then_some(false),
            Some(schema) if schema == SCHEMA => Some(true),
            Some(schema) if schema == TEMPORARY_SCHEMA => Some(false),
            Some(_) => None,
        }
    }
}

impl Occurrences {
    /// Decides what `name` means, which is that of a temporary object and is named in `public`, too; `has_text`: a text
    /// names the temporary one. `made` is the token where the statement makes a permanent object of this name.
    fn decide(
        &self,
        (name, has_text): (&str, bool),
        (tokens, made): (&Tokens, Option<usize>),
        named: &[Qualified],
        (exact, edits): (&mut ExactNames, &mut Edits),
    ) {
        let is_made =
            |(line, column): (u64, u64)| made.is_some() && tokens.at(line, column) == made;
        let mine = |found: &&Occurrence| found.is_permanent(name).is_some() && !is_made(found.last);
        let mine: Vec<&Occurrence> = self.found.iter().filter(mine).collect();
        let is_permanent = |found: &&Occurrence| found.is_permanent(name) == Some(true);
        if mine.iter().all(is_permanent) && !has_text {
            exact.permanent.insert(name.to_owned());
            return;
        }
        let target = mine.iter().find(|found| self.targets.contains(&found.first));
        let is_plain_permanent = made.is_some() || target.is_some_and(is_permanent);
        if is_plain_permanent {
            exact.permanent.insert(name.to_owned());
        }
        let is_repeated = self.repeated.contains(name);
        for found in &mine {
            let is_target = target.is_some_and(|target| target.first == found.first);
            let is_other = is_permanent(found) != is_plain_permanent;
            if is_target || !is_other {
                continue;
            }
            let at = |(line, column)| tokens.at(line, column);
            let (Some(first), Some(last)) = (at(found.first), at(found.last)) else { continue };
            let schema = if is_permanent(found) { SCHEMA } else { TEMPORARY_SCHEMA };
            let mut written = in_quotes(&key_of(schema, name));
            if !is_repeated && !self.aliased.contains(&found.first) {
                written = format!("{written} AS {}", in_quotes(name));
            }
            edits.put((tokens.range(first, first).0, tokens.end(last)), written);
        }
        // Their columns.
        for column in named.iter().filter(|named| named.is_of_column && named.name == name) {
            let schema = if column.is_public { SCHEMA } else { TEMPORARY_SCHEMA };
            let is_other = column.is_public != is_plain_permanent;
            let written = match is_repeated && is_other {
                true => in_quotes(&key_of(schema, name)),
                false => in_quotes(name),
            };
            let (start, _) = tokens.range(column.first, column.place);
            edits.put((start, tokens.end(column.place)), written);
        }
    }

    /// The place of a name.
    fn place(name: &ObjectName) -> Option<(u64, u64)> {
        let first = name.0.first()?.as_ident()?.span.start;
        Some((first.line, first.column))
    }

    fn note_target(&mut self, factor: &TableFactor) {
        if let TableFactor::Table { name, .. } = factor {
            self.targets.extend(Self::place(name));
        }
    }
}

impl Visitor for Occurrences {
    type Break = ();

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
        match statement {
            Statement::Insert(insert) => {
                if let ast::TableObject::TableName(name) = &insert.table {
                    self.targets.extend(Self::place(name));
                }
            }
            Statement::Update(update) => self.note_target(&update.table.relation),
            Statement::Delete(delete) => {
                let (ast::FromTable::WithFromKeyword(tables)
                | ast::FromTable::WithoutKeyword(tables)) = &delete.from;
                tables.iter().for_each(|table| self.note_target(&table.relation));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
        let tables = query.with.iter().flat_map(|with| &with.cte_tables);
        self.with.push(tables.map(|table| fold(&table.alias.name)).collect());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &ast::Query) -> ControlFlow<()> {
        self.with.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &ast::Select) -> ControlFlow<()> {
        let factors = select.from.iter().flat_map(|from| {
            std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation))
        });
        let mut seen = BTreeSet::new();
        for factor in factors {
            if let TableFactor::Table { name, alias: None, .. } = factor
                && let Some(name) = name.0.last().and_then(|part| part.as_ident())
                && !seen.insert(fold(name))
            {
                self.repeated.insert(fold(name));
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, alias: Some(_), .. } = factor {
            self.aliased.extend(Self::place(name));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
        let idents: Option<Vec<&ast::Ident>> = name.0.iter().map(|part| part.as_ident()).collect();
        if let Some(idents) = idents
            && let (Some(first), Some(last)) = (idents.first(), idents.last())
        {
            let place = |ident: &ast::Ident| (ident.span.start.line, ident.span.start.column);
            let parts: Vec<String> = idents.iter().map(|ident| fold(ident)).collect();
            let own = parts.last();
            let is_of_with = self.with.iter().flatten().any(|name| Some(name) == own);
            let (first, last) = (place(first), place(last));
            self.found.push(Occurrence { parts, first, last, is_of_with });
        }
        ControlFlow::Continue(())
    }
}

/// Changes of a text.
#[derive(Default)]
struct Edits(Vec<((usize, usize), String)>);

impl Edits {
    /// Puts `text` in a range. A range around others takes their place.
    fn put(&mut self, range: (usize, usize), text: String) {
        let is_within = |(start, end): (usize, usize)| range.0 <= start && end <= range.1;
        self.0.retain(|(other, _)| range == *other || !is_within(*other));
        self.0.push((range, text));
    }

    fn applied(mut self, text: &str) -> Option<String> {
        self.0.sort();
        self.0.dedup();
        self.0.first()?;
        let (mut out, mut begin) = (String::with_capacity(text.len()), 0);
        for ((start, end), put) in self.0 {
            out.push_str(text.get(begin..start).unwrap_or_default());
            out.push_str(&put);
            begin = begin.max(end);
        }
        Some(out + text.get(begin..).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::exact_names;

    #[test]
    fn names_with_a_schema_are_exact() {
        let read = |sql: &str| {
            let exact = exact_names(sql, &|name| ["a", "s"].contains(&name)).unwrap();
            let permanent = Vec::from_iter(exact.permanent).join(" ");
            let absent = Vec::from_iter(exact.absent).join(" ");
            (permanent, absent, exact.text.unwrap_or_else(|| sql.to_owned()))
        };
        for (sql, permanent, absent, text) in [
            ("SELECT * FROM a", "", "", "SELECT * FROM a"),
            ("SELECT * FROM public.a, b", "a", "", "SELECT * FROM public.a, b"),
            ("DROP TABLE public.a", "a", "", "DROP TABLE public.a"),
            ("TRUNCATE pg_temp.a", "", "", "TRUNCATE a"),
            ("SELECT * FROM pg_temp.b", "", "b", "SELECT * FROM b"),
            ("SELECT nextval('public.s')", "s", "", "SELECT nextval('public.s')"),
            ("CREATE TABLE pg_temp.b (i int)", "", "", "CREATE TEMP TABLE b (i int)"),
            ("CREATE TABLE a (i int)", "a", "", "CREATE TABLE a (i int)"),
            ("CREATE TEMP TABLE a (i int)", "", "", "CREATE TEMP TABLE a (i int)"),
            (
                "CREATE TABLE a AS SELECT * FROM a",
                "a",
                "",
                "CREATE TABLE a AS SELECT * FROM \"pg_temp⟨a⟩\" AS \"a\"",
            ),
            (
                "INSERT INTO public.a SELECT * FROM a x",
                "a",
                "",
                "INSERT INTO public.a SELECT * FROM \"pg_temp⟨a⟩\" x",
            ),
            (
                "UPDATE a SET i = 1 FROM public.a p",
                "",
                "",
                "UPDATE a SET i = 1 FROM \"public⟨a⟩\" p",
            ),
            (
                "SELECT public.a.i, pg_temp.a.i FROM public.a, a",
                "",
                "",
                "SELECT \"public⟨a⟩\".i, \"a\".i FROM \"public⟨a⟩\", a",
            ),
            (
                "COPY (SELECT * FROM public.a EXCEPT TABLE pg_temp.b) TO STDOUT",
                "a",
                "b",
                "COPY (SELECT * FROM public.a EXCEPT TABLE b) TO STDOUT",
            ),
            (
                "SELECT (SELECT max(i) FROM a) FROM public.a",
                "",
                "",
                "SELECT (SELECT max(i) FROM a) FROM \"public⟨a⟩\" AS \"a\"",
            ),
            (
                "SELECT 'public.a'::regclass, 'a'::regclass, nextval('public.s'), 'public.a'",
                "s",
                "",
                "SELECT '\"public⟨a⟩\"'::regclass, 'a'::regclass, nextval('public.s'), 'public.a'",
            ),
        ] {
            let expected = (permanent.to_owned(), absent.to_owned(), text.to_owned());
            assert_eq!(read(sql), expected, "{sql}");
        }
        assert!(exact_names("CREATE TEMP TABLE public.b (i int)", &|_| false).is_err());
    }
}
