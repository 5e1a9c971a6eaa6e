//! Compiled expressions of `ngx.re`, and those that a VM keeps.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use fancy_regex::{Assertion, BytesMode, Expr, Regex, RegexBuilder};
use mlua::LuaString;

use crate::raise::Checked;
use crate::steps::{self, Steps};

/// What all expressions that a VM keeps may take, in bytes; beyond that it begins anew.
const MAX_KEPT: usize = 16 << 20;
/// What a compiled expression may take, in bytes.
const MAX_SIZE: usize = 1 << 20;
/// How long the source of an expression may be.
const MAX_SOURCE: usize = 64 << 10;
/// About what all parts of an expression may take together, in bytes: each is compiled by itself where it backtracks.
const MAX_PARTS: usize = 2 << 20;
/// What takes less has few states, which cost little for each byte.
const HEAVY: usize = 4 << 10;
/// PCRE's message about an expression that is beyond that.
const TOO_LARGE: &str = "pcre_compile() failed: regular expression is too large";
/// What the states of an automaton may take that are made as it runs.
const MAX_DFA: usize = 256 << 10;
/// What every expression takes.
const BASE_SIZE: usize = 32 << 10;
/// How often an expression may backtrack.
const BACKTRACK_LIMIT: usize = 100_000;

/// A compiled expression.
pub(super) struct Compiled {
    pub(super) regex: Regex,
    /// Named groups.
    pub(super) names: Vec<(String, usize)>,
    pub(super) anchored: bool,
    /// A character is one of UTF-8, not a byte.
    pub(super) unicode: bool,
    /// It is matched in linear time.
    pub(super) linear: bool,
    /// It has so many parts that it may take microseconds for each byte.
    pub(super) heavy: bool,
}

/// Why an expression gives no result.
pub(super) type Failure = String;

/// What came of an expression.
type Outcome = Result<Rc<Compiled>, Failure>;

/// Expressions that were compiled, also those that are malformed.
#[derive(Default)]
pub(super) struct Cache {
    known: RefCell<HashMap<Key, Outcome>>,
    /// About how many bytes they take.
    used: Cell<usize>,
}

/// The source and the options of an expression.
type Key = (LuaString, Option<LuaString>);

impl Cache {
    /// The compiled expression, or why there is none. An unknown option is raised.
    pub(super) fn get(&self, key: Key, steps: &Steps) -> Checked<Outcome> {
        if let Some(known) = self.known.borrow().get(&key) {
            return Ok(known.clone());
        }
        let options = key.1.as_ref().map(|options| options.as_bytes().to_vec()).unwrap_or_default();
        steps.take_bytes(key.0.as_bytes().len())?;
        let begun = steps::thread_time();
        let (outcome, size) = compile(&key.0.as_bytes(), &options)?;
        steps.take_since(begun)?;
        let outcome = outcome.map(Rc::new);
        self.keep(key, &outcome, size);
        Ok(outcome)
    }

    /// Keeps what came of an expression, in the place of all others if there is no room.
    fn keep(&self, key: Key, outcome: &Outcome, size: usize) {
        let mut known = self.known.borrow_mut();
        let mut used = self.used.get().saturating_add(size);
        if used > MAX_KEPT {
            known.clear();
            used = size;
        }
        self.used.set(used);
        known.insert(key, outcome.clone());
    }
}

/// The compiled expression, and about how many bytes it takes.
fn compile(regex: &[u8], options: &[u8]) -> Checked<(Result<Compiled, Failure>, usize)> {
    if regex.len() > MAX_SOURCE {
        return Ok((Err(TOO_LARGE.to_owned()), BASE_SIZE + regex.len()));
    }
    let unicode = options.iter().any(|option| option.eq_ignore_ascii_case(&b'u'));
    let source = if unicode { String::from_utf8_lossy(regex).into_owned() } else { bytewise(regex) };
    let mut builder = RegexBuilder::new(&source);
    builder.bytes_mode(if unicode { BytesMode::UnicodeBytes } else { BytesMode::Ascii });
    builder.backtrack_limit(BACKTRACK_LIMIT).delegate_size_limit(MAX_SIZE);
    builder.delegate_dfa_size_limit(MAX_DFA).delegate_dfa_skip_cache_capacity_check(true);
    let mut anchored = false;
    for option in options {
        match option {
            b'i' => builder.case_insensitive(true),
            b's' => builder.dot_matches_new_line(true),
            b'm' => builder.multi_line(true),
            b'x' => builder.verbose_mode(true),
            b'a' => {
                anchored = true;
                &mut builder
            }
            b'o' | b'j' | b'J' | b'd' | b'D' | b'u' | b'U' => &mut builder,
            other => {
                let (flag, flags) = (char::from(*other), String::from_utf8_lossy(options));
                return Err(format!("unknown flag \"{flag}\" (flags \"{flags}\")").into());
            }
        };
    }
    let tree = Expr::parse_tree(&source).ok();
    let size = tree.as_ref().map_or(MAX_SIZE, |tree| size(&tree.expr, unicode));
    if size > MAX_PARTS {
        return Ok((Err(TOO_LARGE.to_owned()), BASE_SIZE + regex.len()));
    }
    let regex = match builder.build() {
        Ok(regex) => regex,
        Err(error) => {
            let failure = format!("pcre_compile() failed: {error} in \"{source}\"");
            return Ok((Err(failure), BASE_SIZE + source.len()));
        }
    };
    let linear = tree.as_ref().is_some_and(|tree| !tree.expr.has_descendant_or_self(backtracks));
    let names = regex.capture_names().enumerate();
    let names = names.filter_map(|(index, name)| Some((name?.to_owned(), index))).collect();
    Ok((
        Ok(Compiled { regex, names, anchored, unicode, linear, heavy: size > HEAVY }),
        BASE_SIZE.saturating_add(size),
    ))
}

/// A source in which each byte beyond ASCII is an escape, because without the option `u` an item is a byte.
fn bytewise(regex: &[u8]) -> String {
    let mut source = String::with_capacity(regex.len());
    for byte in regex {
        if byte.is_ascii() {
            source.push(char::from(*byte));
        } else {
            source.push_str(&format!("\\x{byte:02X}"));
        }
    }
    source
}

/// Whether an item is left to the engine that backtracks.
fn backtracks(item: &Expr) -> bool {
    use Expr::{Alt, Any, Concat, Delegate, Empty, Group, Literal, LiteralBytes, Repeat};
    match item {
        Expr::Assertion(assertion) => matches!(assertion, Assertion::EndTextIgnoreTrailingNewlines { .. }),
        Empty | Any { .. } | Literal { .. } | LiteralBytes { .. } | Delegate { .. } => false,
        Concat(_) | Alt(_) | Group(_) | Repeat { .. } => false,
        _ => true,
    }
}

/// About how many bytes an expression takes. What is repeated is there as often.
fn size(expr: &Expr, unicode: bool) -> usize {
    let sizes = expr.children_iter().map(|child| size(child, unicode));
    let children = sizes.fold(0, usize::saturating_add);
    match expr {
        Expr::Repeat { lo, hi, .. } => {
            let times = if *hi == usize::MAX { lo + 1 } else { *hi };
            children.saturating_mul(times)
        }
        // A class of Unicode has hundreds of ranges.
        Expr::Delegate { .. } if unicode => 16 << 10,
        Expr::Literal { val, .. } => val.len().saturating_mul(64),
        _ => children.saturating_add(128),
    }
}
