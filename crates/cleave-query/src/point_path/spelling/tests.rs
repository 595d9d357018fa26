//! Tests of which constants are taken out of a text, and which texts have no spelling.

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer, Whitespace};
use proptest::prelude::*;

use super::*;

fn spelled(text: &str) -> Option<(String, Vec<String>)> {
    let spelling = Spelling::of(text)?;
    Some((spelling.frame, spelling.constants.iter().map(|value| value.to_string()).collect()))
}

#[test]
fn constants_are_taken_out() {
    let (frame, constants) =
        spelled(" Select a,t.b2 FROM t WHERE id=17 AND (name = 'it''s') and x = -1.50 ;\n")
            .unwrap();
    assert_eq!(frame, "Select a,t.b2 FROM t WHERE id=# AND (name = ') and x = -# ");
    assert_eq!(constants, ["17", "it's", "1.50"]);
    assert_eq!(spelled("SELECT a FROM t WHERE b = ''").unwrap().1, [""]);
    assert_eq!(spelled("SELECT a FROM t WHERE b = 'größer'").unwrap().1, ["größer"]);
}

#[test]
fn what_could_be_read_otherwise_has_no_spelling() {
    for text in [
        "",
        "SELEC",
        "INSERT INTO t VALUES (1)",
        "SELECT a FROM t WHERE id = 1; SELECT 2",
        "SELECT a FROM t WHERE id = 1 -- one",
        "SELECT a FROM t WHERE id = /* one */ 1",
        "SELECT \"a\" FROM t WHERE id = 1",
        "SELECT a FROM t WHERE id = $1",
        "SELECT a FROM t WHERE id = 1e5",
        "SELECT a FROM t WHERE id = 1_000",
        "SELECT a FROM t WHERE id = 0x1F",
        "SELECT a FROM t WHERE id = .5",
        "SELECT a FROM t WHERE id = 5.",
        "SELECT a FROM t WHERE id = 1.2.3",
        "SELECT a FROM t WHERE b = E'a\\n'",
        "SELECT a FROM t WHERE b = U&'a'",
        "SELECT a FROM t WHERE b = 'open",
        "SELECT a FROM t WHERE b = 'a'::text",
        "SELECT a FROM größe WHERE id = 1",
        "SELECT a FROM t WHERE id > 1",
    ] {
        assert_eq!(spelled(text), None, "{text}");
    }
    let long = format!("SELECT a FROM t WHERE b = '{}'", "x".repeat(BYTES_MAX));
    assert_eq!(spelled(&long), None);
}

proptest! {
    /// The parser's own tokens: all but constants stand in the frame, and the constants are these.
    #[test]
    fn frames_and_constants_are_the_tokens_of_the_parser(
        parts in proptest::collection::vec(
            prop_oneof![
                "[a-z_][a-z0-9_]{0,3}", "[0-9]{1,3}", "[0-9]\\.[0-9]{1,2}", "'[a-z'\\\\ é-]{0,4}'", "[ \n]{1,2}",
                "[,.*=()-]", "[;\"$/<e.-]",
            ],
            0..12,
        )
    ) {
        let text = format!("select {}", parts.concat());
        let Some(spelling) = Spelling::of(&text) else { return Ok(()) };
        let dialect = PostgreSqlDialect {};
        // Invalid SQL is never remembered.
        let Ok(tokens) = Tokenizer::new(&dialect, &text).tokenize() else { return Ok(()) };
        let mut constants = Vec::new();
        for token in tokens {
            match token {
                Token::Number(text, false) | Token::SingleQuotedString(text) => constants.push(text),
                // A word in quotes, and all that has a text of its own, would be lost between two texts of one frame.
                Token::Word(word) => prop_assert_eq!(word.quote_style, None),
                Token::Whitespace(Whitespace::Space | Whitespace::Newline | Whitespace::Tab) => {}
                other => prop_assert!(!other.to_string().contains(['\'', '$', '"']), "{other:?}"),
            }
        }
        prop_assert_eq!(&spelling.constants, &constants, "{}", text);
    }
}
