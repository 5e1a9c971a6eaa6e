//! Compiles and matches the regex of a path.
//!
//! The literal prefix is compared byte by byte, so only a small automaton is left for the rest, which routes with
//! the same rest share. Where possible it is a one-pass automaton, because that needs no scratch space: neither a
//! lock nor memory for each thread.
use foldhash::fast::RandomState;
use regex::bytes::Regex;
use regex_automata::dfa::onepass;
use regex_automata::nfa::thompson;
use regex_automata::util::captures::Captures as Spans;
use regex_automata::{Anchored, Input, PatternID, meta};
use regex_syntax::hir::literal::Extractor;
use regex_syntax::hir::{Hir, HirKind, Look};
use std::collections::HashMap;
use std::sync::Arc;

/// A regex with more literal prefixes than this is not indexed by them, because they would bloat the index.
const MAX_LITERALS: usize = 32;
/// A larger character class is not expanded: the literal before it is indexed instead.
const MAX_CLASS: usize = 4;
/// A one-pass automaton is fast but large; beyond this size the slower one is better.
const MAX_ONE_PASS: usize = 256 << 10;

/// Literal prefixes: every path that the regex matches begins with one of them. None is a prefix of another.
pub(super) type Literals = Vec<Box<[u8]>>;

/// A compiled regex.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    /// The literal at the start of every matching path.
    literal: Box<[u8]>,
    anchored: Anchored,
    /// Matches the text behind the literal.
    automaton: Automaton,
}

#[derive(Debug, Clone)]
enum Automaton {
    /// A one-pass automaton: at most one transition from any byte.
    OnePass(Arc<onepass::DFA>),
    Any(Arc<meta::Regex>),
}

impl Pattern {
    /// The length of the text that the regex matches.
    pub(super) fn find(&self, path: &str) -> Option<usize> {
        let input = self.input(path)?;
        match &self.automaton {
            Automaton::OnePass(dfa) => {
                let mut slots = [None; 2];
                dfa.try_search_slots(&mut dfa.create_cache(), &input, &mut slots).ok()??;
                slots[1].map(|end| end.get())
            }
            Automaton::Any(regex) => {
                let found = regex.search(&input)?;
                Some(if self.literal.is_empty() { found.len() } else { found.end() })
            }
        }
    }

    /// Whether the regex has groups.
    pub(super) fn has_groups(&self) -> bool {
        match &self.automaton {
            Automaton::OnePass(dfa) => dfa.get_nfa().group_info().all_group_len() > 1,
            Automaton::Any(regex) => regex.captures_len() > 1,
        }
    }

    /// What the groups captured, if the regex has groups.
    pub(super) fn captures(&self, path: &str) -> Option<Box<Captures>> {
        let input = self.input(path)?;
        let spans = self.automaton.captures(&input)?;
        let names = spans.group_info().pattern_names(PatternID::ZERO);
        let text = |number| {
            let span = spans.get_group(number)?;
            let start = if number == 0 && !self.literal.is_empty() { 0 } else { span.start };
            path.get(start..span.end).map(Box::from)
        };
        let group =
            |(number, name): (usize, Option<&str>)| Group { name: name.map(Box::from), text: text(number) };
        Some(Box::new(Captures { groups: names.enumerate().map(group).collect(), shadowed: None }))
    }

    fn input<'p>(&self, path: &'p str) -> Option<Input<'p>> {
        let follows = path.as_bytes().starts_with(&self.literal);
        follows.then(|| Input::new(path).range(self.literal.len()..).anchored(self.anchored))
    }
}

impl Automaton {
    /// Whether a pattern uses this automaton.
    fn is_shared(&self) -> bool {
        match self {
            Automaton::OnePass(dfa) => Arc::strong_count(dfa) > 1,
            Automaton::Any(regex) => Arc::strong_count(regex) > 1,
        }
    }

    fn captures(&self, input: &Input<'_>) -> Option<Spans> {
        match self {
            Automaton::OnePass(dfa) if dfa.get_nfa().group_info().all_group_len() > 1 => {
                let mut spans = Spans::all(dfa.get_nfa().group_info().clone());
                dfa.captures(&mut dfa.create_cache(), input.clone(), &mut spans);
                Some(spans)
            }
            Automaton::Any(regex) if regex.captures_len() > 1 => {
                let mut spans = regex.create_captures();
                regex.search_captures(input, &mut spans);
                Some(spans)
            }
            _ => None,
        }
    }

    fn build(regex: &Hir, anchored: Anchored) -> Result<Automaton, String> {
        if anchored == Anchored::Yes
            && let Some(dfa) = one_pass(regex)
        {
            return Ok(Automaton::OnePass(Arc::new(dfa)));
        }
        let regex = meta::Builder::new().build_from_hir(regex);
        regex.map(|regex| Automaton::Any(Arc::new(regex))).map_err(|error| match error.size_limit() {
            Some(limit) => {
                format!("it takes more than {limit} bytes when compiled; make its repetitions smaller")
            }
            None => error.to_string(),
        })
    }
}

fn one_pass(regex: &Hir) -> Option<onepass::DFA> {
    let limit = Some(MAX_ONE_PASS);
    let nfa = thompson::Compiler::new()
        .configure(thompson::Config::new().nfa_size_limit(limit))
        .build_from_hir(regex)
        .ok()?;
    let config = onepass::Config::new().size_limit(limit);
    onepass::Builder::new().configure(config).build_from_nfa(nfa).ok()
}

/// What the groups of a path's regex captured: Kong's `uri_captures`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captures {
    groups: Box<[Group]>,
    /// Those of a regex that matched before, of an expression with several: looked up where a group has no text here.
    shadowed: Option<Box<Captures>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    name: Option<Box<str>>,
    text: Option<Box<str>>,
}

impl Captures {
    /// The text of a group by its number; 0 is the whole match.
    pub fn get(&self, group: usize) -> Option<&str> {
        let own = self.groups.get(group).and_then(|group| group.text.as_deref());
        own.or_else(|| self.shadowed.as_ref()?.get(group))
    }

    /// The text of a group by its name.
    pub fn name(&self, name: &str) -> Option<&str> {
        let own = self.groups.iter().find(|group| group.name.as_deref() == Some(name));
        own.and_then(|group| group.text.as_deref()).or_else(|| self.shadowed.as_ref()?.name(name))
    }

    /// Puts these before those of a regex that matched before. Where both have the same groups they become one, so that a
    /// client that repeats a header or an argument makes no long chain.
    pub(super) fn shadow(&mut self, before: Option<Box<Captures>>) {
        let Some(mut before) = before else { return };
        if !self.groups.iter().map(|group| &group.name).eq(before.groups.iter().map(|group| &group.name)) {
            self.shadowed = Some(before);
            return;
        }
        for (own, other) in self.groups.iter_mut().zip(before.groups.iter_mut()) {
            own.text = own.text.take().or_else(|| other.text.take());
        }
        self.shadowed = before.shadowed.take();
    }

    /// Names and texts of all groups, the whole match first.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&str>, Option<&str>)> {
        self.groups.iter().map(|group| (group.name.as_deref(), group.text.as_deref()))
    }
}

/// Compiles regexes. Shared automata are compiled once; those of the previous router are reused.
#[derive(Debug, Default)]
pub struct Patterns {
    paths: Kept<(Pattern, Literals)>,
    texts: Kept<(Pattern, Literals)>,
    headers: Kept<Regex>,
    automata: Automata,
}

impl Patterns {
    /// The regex of a path, given without its `~`, and its literal prefixes. The error says what is wrong.
    pub(super) fn path(&mut self, regex: &str) -> Result<(Pattern, Literals), String> {
        self.paths.get(regex, || self.automata.compile(regex))
    }

    /// The regex of an expression, which matches anywhere in a text, and the literals that this begins with.
    pub(super) fn text(&mut self, regex: &str) -> Result<(Pattern, Literals), String> {
        self.texts.get(regex, || self.automata.compile_as_is(regex))
    }

    /// The regex of a header's value. The error says what is wrong.
    pub(super) fn header(&mut self, regex: &str) -> Result<Regex, String> {
        self.headers.get(regex, || Regex::new(regex).map_err(|error| explain(&error.to_string())))
    }

    /// Drops the automata that this router does not use.
    pub(super) fn finish(&mut self) {
        self.paths.finish();
        self.texts.finish();
        self.headers.finish();
        self.automata.0.retain(|_, automaton| automaton.is_shared());
    }
}

/// Values by their text: those of the previous build, and those that this build uses.
#[derive(Debug)]
struct Kept<T> {
    last: HashMap<Box<str>, T, RandomState>,
    now: HashMap<Box<str>, T, RandomState>,
}

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept { last: HashMap::default(), now: HashMap::default() }
    }
}

impl<T: Clone> Kept<T> {
    fn get(&mut self, text: &str, make: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        if let Some(value) = self.now.get(text) {
            return Ok(value.clone());
        }
        let (text, value) = match self.last.remove_entry(text) {
            Some(known) => known,
            None => (text.into(), make()?),
        };
        self.now.insert(text, value.clone());
        Ok(value)
    }

    fn finish(&mut self) {
        self.last = std::mem::take(&mut self.now);
    }
}

/// Automata by the pattern that they match.
#[derive(Debug, Default)]
struct Automata(HashMap<(bool, String), Automaton, RandomState>);

impl Automata {
    /// Kong prepends the anchor to the regex without a group, so `/a|/b` becomes `^/a|/b`.
    fn compile(&mut self, regex: &str) -> Result<(Pattern, Literals), String> {
        self.compile_as_is(&format!("^{regex}"))
    }

    fn compile_as_is(&mut self, regex: &str) -> Result<(Pattern, Literals), String> {
        let regex = regex_syntax::parse(regex).map_err(|error| explain(&error.to_string()))?;
        if !regex.properties().look_set_prefix().contains(Look::Start) {
            let pattern = self.pattern(Box::default(), &regex, Anchored::No)?;
            return Ok((pattern, vec![Box::default()]));
        }
        let literals = literals(&regex);
        let (literal, rest) = split_literal(regex);
        Ok((self.pattern(literal, &rest, Anchored::Yes)?, literals))
    }

    fn pattern(&mut self, literal: Box<[u8]>, rest: &Hir, anchored: Anchored) -> Result<Pattern, String> {
        let key = (anchored == Anchored::Yes, rest.to_string());
        let automaton = match self.0.get(&key) {
            Some(automaton) => automaton.clone(),
            None => {
                let automaton = Automaton::build(rest, anchored)?;
                self.0.insert(key, automaton.clone());
                automaton
            }
        };
        Ok(Pattern { literal, anchored, automaton })
    }
}

/// Describes the error in a regex, and how to fix it.
pub(super) fn explain(error: &str) -> String {
    let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
    let remedy = if reason.contains("look-around") || reason.contains("backreferences") {
        "rewrite it without: regexes run in linear time here"
    } else {
        "correct it, or write \\ before a character that stands for itself"
    };
    format!("{reason}; {remedy}")
}

fn literals(regex: &Hir) -> Literals {
    let sequence = Extractor::new().limit_total(MAX_LITERALS).limit_class(MAX_CLASS).extract(regex);
    let Some(literals) = sequence.literals() else { return vec![Box::default()] };
    let mut literals: Literals = literals.iter().map(|literal| literal.as_bytes().into()).collect();
    literals.sort_unstable();
    literals.dedup_by(|longer, shorter| longer.starts_with(shorter));
    literals
}

/// Removes the anchor and the literal from the front. Without a literal the anchor stays.
fn split_literal(regex: Hir) -> (Box<[u8]>, Hir) {
    let HirKind::Concat(parts) = regex.kind() else { return (Box::default(), regex) };
    match parts.as_slice() {
        [anchor, literal, rest @ ..] if *anchor.kind() == HirKind::Look(Look::Start) => {
            match literal.kind() {
                HirKind::Literal(literal) => (literal.0.clone(), Hir::concat(rest.to_vec())),
                _ => (Box::default(), regex),
            }
        }
        _ => (Box::default(), regex),
    }
}
