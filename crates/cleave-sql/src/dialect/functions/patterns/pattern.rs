//! A regular expression with the extent of PostgreSQL's matches.
//!
//! A match begins at the first place where one can. Where it ends depends on whether the expression as a whole is
//! greedy: then it is the longest that begins there, else the shortest. DataFusion's library takes the first in the
//! order of preference instead: of `a|ab`, `a`.
//!
//! Invariant: groups are those of a match of this extent. Which part each group has is what the library prefers.
//!
//! Source: PostgreSQL's documentation, "Regular Expression Matching Rules".

use std::cell::RefCell;
use std::ops::Range;

use cleave_fragment::functions::ArgumentFault;
use datafusion::error::Result;
use regex::{CaptureLocations, Regex, RegexBuilder};
use regex_automata::hybrid::dfa;
use regex_automata::nfa::thompson::{self, WhichCaptures, pikevm};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};
use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{Ast, RepetitionKind, RepetitionRange};

use crate::dialect::regular_expressions::translated;

/// The size of a compiled expression, at most; that of the library.
const SIZE_MAX: usize = 10 << 20;

/// What a match takes: first all of it, then its groups; None for a group that takes no part.
pub(super) type Groups = Vec<Option<Range<usize>>>;

/// A compiled expression.
pub(super) struct Pattern {
    regex: Regex,
    found: RefCell<CaptureLocations>,
    /// Searches for the end; None where the library's own is PostgreSQL's.
    extent: Option<Extent>,
}

struct Extent {
    is_longest: bool,
    ends: dfa::DFA,
    ends_cache: RefCell<dfa::Cache>,
    groups: pikevm::PikeVM,
    groups_cache: RefCell<pikevm::Cache>,
}

/// What the letters of a function's flags ask for.
#[derive(Default, Clone, Copy)]
struct Options {
    ignores_case: bool,
    by_lines: bool,
    ignores_blanks: bool,
    is_text: bool,
}

impl Pattern {
    /// `pattern` as PostgreSQL reads it, with the letters of `flags`; `g` is the caller's.
    ///
    /// # Errors
    /// An unknown letter, or an invalid expression.
    pub(super) fn new(pattern: &str, flags: &str) -> Result<Self> {
        let options = Options::of(flags)?;
        let pattern = match options.is_text {
            true => regex::escape(pattern),
            false => translated(pattern, options.by_lines),
        };
        let mut builder = RegexBuilder::new(&pattern);
        builder
            .multi_line(options.by_lines)
            .case_insensitive(options.ignores_case)
            .ignore_whitespace(options.ignores_blanks);
        let regex = builder.build().map_err(fault)?;
        let found = RefCell::new(regex.capture_locations());
        let extent = match is_longest(&pattern, options.ignores_blanks) {
            Some(is_longest) => Some(Extent::new(&pattern, options, is_longest)?),
            None => None,
        };
        Ok(Self { regex, found, extent })
    }

    /// The number of groups, without the whole match.
    pub(super) fn groups(&self) -> usize {
        self.regex.captures_len() - 1
    }

    /// The group to give for `asked`: of a pattern without groups, the first is all of the match.
    pub(super) fn group(&self, asked: usize) -> usize {
        if asked == 1 && self.groups() == 0 { 0 } else { asked }
    }

    /// The first match that begins at `from` or behind it, a boundary of characters.
    pub(super) fn find_at(&self, text: &str, from: usize) -> Option<Range<usize>> {
        let found = self.regex.find_at(text, from)?.range();
        let Some(extent) = &self.extent else { return Some(found) };
        Some(found.start..extent.end(text, &found))
    }

    /// The match, and what its groups have.
    pub(super) fn groups_at(&self, text: &str, from: usize) -> Option<Groups> {
        let mut locations = self.found.borrow_mut();
        let found = self.regex.captures_read_at(&mut locations, text, from)?.range();
        if let Some(extent) = &self.extent {
            let end = extent.end(text, &found);
            if end != found.end {
                return Some(extent.groups(text, found.start..end));
            }
        }
        let groups =
            (0..locations.len()).map(|group| locations.get(group).map(|(from, to)| from..to));
        Some(groups.collect())
    }
}

impl Extent {
    fn new(pattern: &str, options: Options, is_longest: bool) -> Result<Self> {
        let syntax = syntax::Config::new()
            .multi_line(options.by_lines)
            .case_insensitive(options.ignores_case)
            .ignore_whitespace(options.ignores_blanks);
        let automaton = |captures| {
            thompson::Config::new().nfa_size_limit(Some(SIZE_MAX)).which_captures(captures)
        };
        let ends = dfa::DFA::builder()
            .configure(dfa::Config::new().match_kind(MatchKind::All).unicode_word_boundary(true))
            .syntax(syntax)
            .thompson(automaton(WhichCaptures::None))
            .build(pattern)
            .map_err(fault)?;
        let groups = pikevm::PikeVM::builder()
            .configure(pikevm::Config::new().match_kind(MatchKind::All))
            .syntax(syntax)
            .thompson(automaton(WhichCaptures::All))
            .build(pattern)
            .map_err(fault)?;
        let (ends_cache, groups_cache) = (ends.create_cache().into(), groups.create_cache().into());
        Ok(Self { is_longest, ends, ends_cache, groups, groups_cache })
    }

    /// Where the match that begins as `found` ends.
    fn end(&self, text: &str, found: &Range<usize>) -> usize {
        let input = Input::new(text).span(found.start..text.len()).anchored(Anchored::Yes);
        let input = input.earliest(!self.is_longest);
        let end = self.ends.try_search_fwd(&mut self.ends_cache.borrow_mut(), &input);
        match end {
            Ok(end) => end.map_or(found.end, |end| end.offset()),
            // It gave up, at letters beyond ASCII beside an end of a word.
            Err(_) => {
                let mut cache = self.groups_cache.borrow_mut();
                let mut slots = [None; 2];
                self.groups.search_slots(&mut cache, &input, &mut slots);
                slots[1].map_or(found.end, |end| end.get())
            }
        }
    }

    fn groups(&self, text: &str, found: Range<usize>) -> Groups {
        let mut groups = self.groups.create_captures();
        let input = Input::new(text).span(found.clone()).anchored(Anchored::Yes);
        self.groups.captures(&mut self.groups_cache.borrow_mut(), input, &mut groups);
        let mut all: Groups = groups.iter().map(|group| group.map(|span| span.range())).collect();
        if let Some(whole) = all.first_mut() {
            *whole = Some(found);
        }
        all
    }
}

impl Options {
    fn of(flags: &str) -> Result<Self, ArgumentFault> {
        let mut options = Self::default();
        for flag in flags.chars() {
            match flag {
                'i' => options.ignores_case = true,
                'c' => options.ignores_case = false,
                'n' | 'm' => options.by_lines = true,
                's' => options.by_lines = false,
                'x' => options.ignores_blanks = true,
                'q' => options.is_text = true,
                't' | 'e' | 'g' => {}
                _ => {
                    let reason = format!("invalid regular expression option: \"{flag}\"");
                    return Err(ArgumentFault::Invalid { reason });
                }
            }
        }
        Ok(options)
    }
}

fn fault(error: impl std::fmt::Display) -> ArgumentFault {
    let reason = error.to_string().lines().last().unwrap_or_default().to_owned();
    ArgumentFault::Pattern { reason }
}

/// Whether the longest match is asked for, or the shortest; None if the library's is certainly the same.
fn is_longest(pattern: &str, ignores_blanks: bool) -> Option<bool> {
    let mut parser = ParserBuilder::new();
    let ast = parser.ignore_whitespace(ignores_blanks).build().parse(pattern).ok()?;
    let mut choices = Choices::default();
    choices.count(&ast);
    // A single choice of one kind is what the library takes as well.
    let is_same = !choices.alternatives && choices.greedy + choices.lazy <= 1;
    (!is_same).then(|| is_greedy(&ast).unwrap_or(true))
}

/// What an expression leaves open.
#[derive(Default)]
struct Choices {
    alternatives: bool,
    greedy: usize,
    lazy: usize,
}

impl Choices {
    fn count(&mut self, ast: &Ast) {
        match ast {
            Ast::Repetition(repetition) => {
                match (is_exact(&repetition.op.kind), repetition.greedy) {
                    (true, _) => {}
                    (false, true) => self.greedy += 1,
                    (false, false) => self.lazy += 1,
                }
                self.count(&repetition.ast);
            }
            Ast::Group(group) => self.count(&group.ast),
            Ast::Alternation(alternation) => {
                self.alternatives = true;
                alternation.asts.iter().for_each(|ast| self.count(ast));
            }
            Ast::Concat(concat) => concat.asts.iter().for_each(|ast| self.count(ast)),
            _ => {}
        }
    }
}

/// Whether an expression is greedy; None if it has no preference.
fn is_greedy(ast: &Ast) -> Option<bool> {
    match ast {
        Ast::Repetition(repetition) if is_exact(&repetition.op.kind) => is_greedy(&repetition.ast),
        Ast::Repetition(repetition) => Some(repetition.greedy),
        Ast::Group(group) => is_greedy(&group.ast),
        Ast::Alternation(_) => Some(true),
        Ast::Concat(concat) => concat.asts.iter().find_map(is_greedy),
        _ => None,
    }
}

/// `{m}`.
fn is_exact(kind: &RepetitionKind) -> bool {
    matches!(kind, RepetitionKind::Range(RepetitionRange::Exactly(_)))
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn matches_have_the_extent_of_postgresqls() {
        // The pattern, the text, and what PostgreSQL 15 gives for regexp_match, behind the whole match.
        for (pattern, text, whole, groups) in [
            ("a|ab", "xabc", "ab", vec![]),
            ("(a|ab)(c|bcd)", "abcd", "abcd", vec!["a", "bcd"]),
            ("(a?)(ab)?", "ab", "ab", vec!["", "ab"]),
            ("Y*([0-9]{1,3})", "XY1234Z", "Y123", vec!["123"]),
            ("Y*?([0-9]{1,3})", "XY1234Z", "Y1", vec!["1"]),
            ("a.*?b.*", "xaabbc", "aab", vec![]),
            ("<(.*?)>", "x<a><b>", "<a>", vec!["a"]),
            ("(?:a.*?b|x)", "aabb", "aabb", vec![]),
            (r"\y(é|éa)\y", "éa é", "éa", vec!["éa"]),
        ] {
            let found = Pattern::new(pattern, "").unwrap().groups_at(text, 0).unwrap();
            let found: Vec<&str> =
                found.into_iter().map(|group| group.map_or("-", |group| &text[group])).collect();
            assert_eq!(found[0], whole, "{pattern}");
            assert_eq!(found[1..], groups, "{pattern}");
        }
    }
}
