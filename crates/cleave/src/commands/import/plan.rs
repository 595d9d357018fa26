//! Plans an import: for each statement of a dump, what to do with it.
//!
//! A statement is skipped untried only if no client of the database would miss it, each kind with its reason. All
//! others are run unchanged: unsupported ones fail with their own error.

use std::collections::BTreeMap;

use super::dump::Item;

/// The fate of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is run, as this text.
    Run(String),
    /// Another statement does it.
    Done,
    /// It is not run.
    Skipped(&'static str),
}

/// The fate of each statement, in the order in which they are run.
pub(super) fn planned(items: &[Item]) -> Vec<(&Item, Fate)> {
    // Keys by the table that they are added to, if the dump makes it.
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let made: Vec<String> = items.iter().filter_map(|item| created_table(&item.text)).collect();
    for item in items {
        if let Some((table, key)) = added_key(&item.text)
            && made.contains(&table)
        {
            keys.entry(table).or_default().push(key);
        }
    }
    let fate = |item: &Item| {
        if let Some(reason) = skipped(&item.text) {
            return Fate::Skipped(reason);
        }
        if let Some(table) = created_table(&item.text) {
            let keys = keys.get(&table).map(Vec::as_slice).unwrap_or_default();
            return Fate::Run(with_keys(&item.text, keys));
        }
        match added_key(&item.text) {
            Some((table, _)) if made.contains(&table) => Fate::Done,
            _ => Fate::Run(item.text.clone()),
        }
    };
    items.iter().map(|item| (item, fate(item))).collect()
}

fn skipped(text: &str) -> Option<&'static str> {
    let mut words = Words(text);
    if text.starts_with('\\') {
        return Some("a command of psql");
    }
    if words.take("set") {
        return Some("a setting of the session that restores the dump");
    }
    if words.take("select") && words.0.trim_start().starts_with("pg_catalog.set_config(") {
        return Some("a setting of the session that restores the dump");
    }
    if words.take("comment") && words.take("on") && words.take("extension") {
        return Some("comments on extensions, of which there are none");
    }
    if words.take("grant") || words.take("revoke") {
        return Some("rights are not taken: they are of roles of the other database");
    }
    if words.take("alter") {
        if words.take("default") && words.take("privileges") {
            return Some("rights are not taken: they are of roles of the other database");
        }
        return text
            .to_ascii_lowercase()
            .contains(" owner to ")
            .then_some("owners are not taken: they are roles of the other database");
    }
    if words.take("create") && words.take("schema") {
        let is_public = words.name().is_some_and(|name| name == "public");
        return is_public.then_some("the schema public is there");
    }
    None
}

/// The table that a statement creates.
pub(super) fn created_table(text: &str) -> Option<String> {
    let mut words = Words(text);
    (words.take("create") && words.take("table")).then(|| words.name()).flatten()
}

/// The table to which a statement adds a primary or unique key, and the key in the form of CREATE TABLE.
fn added_key(text: &str) -> Option<(String, String)> {
    let mut words = Words(text);
    if !words.take("alter") || !words.take("table") {
        return None;
    }
    let _ = words.take("only");
    let table = words.name()?;
    if !words.take("add") || !words.take("constraint") {
        return None;
    }
    let name = words.raw_name()?;
    let key = words.0.trim();
    let is_key = (words.take("primary") && words.take("key")) || words.take("unique");
    // UNIQUE NULLS NOT DISTINCT and the like have the same text in CREATE TABLE.
    (is_key && !key.contains(';')).then(|| (table, format!("CONSTRAINT {name} {key}")))
}

/// `text`, a CREATE TABLE, with more constraints at the end of its list.
fn with_keys(text: &str, keys: &[String]) -> String {
    let Some(end) = list_end(text).filter(|_| !keys.is_empty()) else { return text.to_owned() };
    let (list, behind) = text.split_at(end);
    format!("{},\n    {}\n{behind}", list.trim_end(), keys.join(",\n    "))
}

/// The position of the parenthesis that closes the first one outside of quotes.
pub(super) fn list_end(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0_usize, None);
    for (place, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '(') => depth += 1,
            (None, ')') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(place);
                }
            }
            (None, _) => {}
        }
    }
    None
}

/// Words from the start of a text.
pub(super) struct Words<'a>(pub(super) &'a str);

impl<'a> Words<'a> {
    /// Takes the next word if it is `word`.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let rest = self.0.trim_start();
        let is_it = rest.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
        let rest = rest.get(word.len()..).unwrap_or_default();
        let ends = !rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        if is_it && ends {
            self.0 = rest;
        }
        is_it && ends
    }

    /// Takes a name, as it is written.
    pub(super) fn raw_name(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start();
        let mut is_quoted = false;
        let is_end = |letter: char| {
            is_quoted ^= letter == '"';
            !is_quoted && (letter.is_whitespace() || matches!(letter, '(' | ',' | ';'))
        };
        let end = rest.find(is_end).unwrap_or(rest.len());
        let (name, rest) = rest.split_at(end);
        self.0 = rest;
        (!name.is_empty()).then_some(name)
    }

    /// Takes a name, without its schema `public`.
    fn name(&mut self) -> Option<String> {
        let name = self.raw_name()?;
        Some(name.strip_prefix("public.").unwrap_or(name).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::dump;
    use super::*;

    #[test]
    fn keys_go_into_their_table() {
        let text = "CREATE TABLE public.\"T x\" (\n    a text DEFAULT ')'::text,\n    b numeric(5,2)\n)\nWITH \
            (fillfactor='70');\n\
            ALTER TABLE public.\"T x\" OWNER TO ada;\n\
            ALTER TABLE ONLY public.\"T x\"\n    ADD CONSTRAINT \"T_pkey\" PRIMARY KEY (a);\n\
            ALTER TABLE ONLY public.\"T x\"\n    ADD CONSTRAINT u UNIQUE (b);\n\
            ALTER TABLE ONLY public.\"T x\"\n    ADD CONSTRAINT f FOREIGN KEY (b) REFERENCES public.o(b);\n\
            ALTER TABLE ONLY public.other\n    ADD CONSTRAINT o PRIMARY KEY (a);\n";
        let items = dump::read(text.as_bytes()).unwrap();
        let planned: Vec<Fate> = planned(&items).into_iter().map(|(_, fate)| fate).collect();
        let made = "CREATE TABLE public.\"T x\" (\n    a text DEFAULT ')'::text,\n    b numeric(5,2),\n    \
            CONSTRAINT \"T_pkey\" PRIMARY KEY (a),\n    CONSTRAINT u UNIQUE (b)\n)\nWITH (fillfactor='70')";
        assert_eq!(planned[0], Fate::Run(made.to_owned()));
        assert_eq!(
            planned[1],
            Fate::Skipped("owners are not taken: they are roles of the other database")
        );
        assert_eq!(planned[2..4], [Fate::Done, Fate::Done]);
        assert!(matches!(&planned[4], Fate::Run(text) if text.contains("FOREIGN KEY")));
        assert!(matches!(&planned[5], Fate::Run(text) if text.contains("other")));
    }
}
