//! What the text of a `handler.lua` shows of the handler: the table that it returns, its methods, and what a plugin is refused
//! for.

use super::handler::{self, PHASES, version};
use super::needs::Missing;
use crate::settings::LuaSettings;
use crate::source;
use crate::tokens::{Token, Tokens, tokens};
use crate::vm::Vm;
use mlua::{Table, Value};
use std::path::Path;
use std::sync::Arc;
use weir_plugin::schema::did_you_mean;

/// Methods that a handler cannot have beside `response`, which gets the whole response.
const NOT_BESIDE_RESPONSE: [&str; 2] = ["header_filter", "body_filter"];

/// Methods that are called without a request.
const OF_WORKERS: [&str; 2] = ["init_worker", "configure"];

/// Methods that Kong calls, and the host does not.
const NOT_CALLED: [&str; 5] = ["preread", "ws_handshake", "ws_client_frame", "ws_upstream_frame", "ws_close"];

/// What a file returns, as far as its text shows it.
#[derive(Clone, Copy)]
enum Returned<'t> {
    /// A table that begins at this word.
    Table(usize),
    /// What a variable holds.
    Variable(&'t str),
    /// No table: what it is, and its line.
    NoTable(&'static str, usize),
    Unknown,
}

/// A member of the handler.
#[derive(Clone, Copy)]
struct Member<'t> {
    name: &'t str,
    line: usize,
    value: Assigned,
}

/// What a member is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Assigned {
    /// A function that is declared as such.
    Function,
    /// What begins with this word.
    At(usize),
    /// One of several values that are assigned together.
    Unknown,
}

/// A field of handlers, the form of its value, and whether the words that follow may be such a value.
type Rule = (&'static str, &'static str, fn(&Tokens<'_>) -> bool);

/// What keeps the handler in a file, if it holds one, from being loaded, and what is not called.
pub(super) fn problems(file: &Path, tokens: &Tokens<'_>) -> Vec<Missing> {
    if file.file_name().is_none_or(|name| name != "handler.lua") {
        return Vec::new();
    }
    let returned = returned(tokens);
    if let Returned::NoTable(what, line) = returned {
        let message = format!("the file returns {what}: let it return the table of the handler");
        return vec![Missing::new(file, line, message)];
    }
    let members = members(tokens, returned);
    let mut found: Vec<Missing> = contradiction(file, tokens, &members).into_iter().collect();
    found.extend(fields(file, tokens, (returned, &members)));
    found.extend(members.iter().filter_map(|member| not_called(file, tokens, member)));
    found
}

/// A method `response` of a handler that has a filter, too.
fn contradiction(file: &Path, tokens: &Tokens<'_>, members: &[Member<'_>]) -> Option<Missing> {
    let is_method = |it: &Member<'_>| match it.value {
        Assigned::Function => true,
        Assigned::At(at) => tokens.get(at).is_some_and(|(token, _)| *token != Token::Name("nil")),
        Assigned::Unknown => false,
    };
    // What is assigned last counts.
    let member = |method| members.iter().rfind(|it| it.name == method);
    let line = |method| member(method).filter(|it| is_method(it)).map(|it| it.line);
    let response = line("response")?;
    let filter = NOT_BESIDE_RESPONSE.into_iter().find(|filter| line(filter).is_some())?;
    let message = format!(
        "a handler with `response` cannot have `{filter}`: do its work in `response`, which gets the headers and the body"
    );
    Some(Missing::new(file, response, message))
}

/// What is wrong with `PRIORITY` and `VERSION`.
fn fields(
    file: &Path,
    tokens: &Tokens<'_>,
    (returned, members): (Returned<'_>, &[Member<'_>]),
) -> Vec<Missing> {
    let start = start(tokens, returned);
    let rules: [Rule; 2] = [
        ("PRIORITY", "a whole number, such as 1000", is_priority),
        ("VERSION", "a text of the form x.y.z, such as \"1.0.0\"", is_version),
    ];
    let wrong = |(name, form, is_good): Rule| {
        let Some(member) = members.iter().rfind(|it| it.name == name) else {
            let line = tokens.get(start?).map(|(_, line)| *line)?;
            let message =
                format!("the handler has no {name}: give it {form}, because Kong refuses it without");
            return Some(Missing::new(file, line, message));
        };
        let is_good = match member.value {
            Assigned::At(at) => is_good(&tokens[at..]),
            Assigned::Unknown => true,
            Assigned::Function => false,
        };
        (!is_good).then(|| Missing::new(file, member.line, format!("{name} must be {form}")))
    };
    rules.into_iter().filter_map(wrong).collect()
}

/// Where the table of the handler begins, if the text shows all of its fields.
fn start(tokens: &Tokens<'_>, returned: Returned<'_>) -> Option<usize> {
    match returned {
        Returned::Table(at) => Some(at),
        Returned::Variable(name) => {
            let is_hidden = |two: &Tokens<'_>| match two {
                [(Token::Name(variable), _), (Token::Sign('['), _)] => *variable == name,
                [(Token::Sign('(' | ','), _), (Token::Name(variable), _)] => *variable == name,
                _ => false,
            };
            let begins = |three: &Tokens<'_>| {
                matches!(three, [(Token::Name(variable), _), (Token::Sign('='), _), (Token::Sign('{'), _)]
                    if *variable == name)
            };
            let at = tokens.windows(3).position(begins)?;
            (!tokens.windows(2).any(is_hidden)).then_some(at)
        }
        _ => None,
    }
}

/// Whether what follows may be a whole number.
fn is_priority(value: &Tokens<'_>) -> bool {
    match value.first().map(|(token, _)| *token) {
        Some(Token::Text(_) | Token::Sign('{') | Token::Name("nil" | "true" | "false" | "function")) => false,
        Some(Token::Sign('0'..='9')) => {
            let number = value.iter().map_while(|(token, _)| match token {
                Token::Sign(c) if c.is_ascii_digit() || *c == '.' => Some(*c),
                _ => None,
            });
            let number: String = number.collect();
            number.split_once('.').is_none_or(|(_, rest)| rest.trim_end_matches('0').is_empty())
        }
        _ => true,
    }
}

/// Whether what follows may be a version.
fn is_version(value: &Tokens<'_>) -> bool {
    match value {
        [(Token::Text(_), _), (Token::Sign('.'), _), ..] => true,
        [(Token::Text(text), _), ..] => version(text).is_some(),
        [
            (Token::Sign('{' | '-' | '0'..='9') | Token::Name("nil" | "true" | "false" | "function"), _),
            ..,
        ] => false,
        _ => true,
    }
}

/// A method that is called in no phase, or looks as if it should be.
fn not_called(file: &Path, tokens: &Tokens<'_>, member: &Member<'_>) -> Option<Missing> {
    let name = member.name;
    let is_function = match member.value {
        Assigned::Function => true,
        Assigned::At(at) => tokens.get(at).is_some_and(|(token, _)| *token == Token::Name("function")),
        Assigned::Unknown => false,
    };
    if !is_function {
        return None;
    }
    if NOT_CALLED.contains(&name) {
        return Some(Missing::warning(file, member.line, format!("the method `{name}` is not called here")));
    }
    misspelt(name, tokens).map(|message| Missing::warning(file, member.line, message))
}

/// What is said of a function of the handler whose name is near that of a phase, unless the file itself calls it.
fn misspelt(name: &str, tokens: &Tokens<'_>) -> Option<String> {
    let phases = PHASES.iter().map(|phase| phase.name()).chain(OF_WORKERS);
    let near: Vec<&str> = phases.filter(|phase| phase.len().abs_diff(name.len()) <= 2).collect();
    let is_called = || tokens.iter().filter(|(token, _)| *token == Token::Name(name)).count() > 1;
    let hint = did_you_mean(name, near.iter().copied());
    let is_typo = !near.contains(&name) && !hint.is_empty() && !is_called();
    is_typo.then(|| format!("no phase calls the method `{name}`{hint}"))
}

/// What is said of the functions of a handler that has been loaded, whose file has this text.
fn misspelt_ones(handler: &Table, text: &str) -> Vec<String> {
    let tokens = tokens(text);
    let members = handler.pairs::<Value, Value>().filter_map(Result::ok);
    let functions = members.filter(|(_, value)| value.is_function());
    let names = functions.filter_map(|(name, _)| Some(name.as_string()?.to_string_lossy()));
    let mut found: Vec<String> = names.filter_map(|name| misspelt(&name, &tokens)).collect();
    found.sort();
    found
}

/// What there is to say of functions of a handler that no phase calls, because their names are misspelt.
pub(super) fn warnings(settings: &Arc<LuaSettings>, name: &str) -> Result<Vec<String>, String> {
    let vm = Vm::reading(settings).map_err(|error| source::message(&error))?;
    let table = handler::table(&vm, name)?;
    let file = vm.files.sources.find(&handler::module(name, "handler")).ok().flatten();
    let text = file.map(|file| String::from_utf8_lossy(&file.text).into_owned()).unwrap_or_default();
    let found = misspelt_ones(&table, &text).into_iter();
    Ok(found.map(|message| format!("{}: {message}", handler::place(&vm, name))).collect())
}

/// What the last statement of a file returns.
fn returned<'t>(tokens: &Tokens<'t>) -> Returned<'t> {
    let last_line = tokens.last().map_or(1, |(_, line)| *line);
    let (mut depth, mut found) = (0_usize, None);
    for (at, (token, _)) in tokens.iter().enumerate() {
        match token {
            Token::Name("function" | "do" | "if" | "repeat") => depth += 1,
            Token::Name("end" | "until") => depth = depth.saturating_sub(1),
            Token::Name("return") if depth == 0 => found = Some(at),
            _ => {}
        }
    }
    let Some(at) = found else { return Returned::NoTable("nothing", last_line) };
    let line = tokens[at].1;
    match &tokens[at + 1..] {
        [] | [(Token::Sign(';'), _)] | [(Token::Name("nil"), _), ..] => Returned::NoTable("nothing", line),
        [(Token::Name("true" | "false"), _), ..] => Returned::NoTable("a boolean", line),
        [(Token::Name("function"), _), ..] => Returned::NoTable("a function", line),
        [(Token::Text(_), _)] => Returned::NoTable("a text", line),
        [(Token::Sign('0'..='9'), _), ..] => Returned::NoTable("a number", line),
        [(Token::Sign('{'), _), ..] => Returned::Table(at + 1),
        [(Token::Name(name), _)] | [(Token::Name(name), _), (Token::Sign(';'), _)] => {
            Returned::Variable(name)
        }
        _ => Returned::Unknown,
    }
}

/// The members of the handler: `function Handler:name`, `Handler.name =`, and `name =` in the table itself.
fn members<'t>(tokens: &Tokens<'t>, returned: Returned<'t>) -> Vec<Member<'t>> {
    let (mut found, mut depth) = (Vec::new(), None);
    for at in 0..tokens.len() {
        depth = match (tokens[at].0, depth) {
            (Token::Sign('{'), None) => is_handler(tokens, at, returned).then_some(1),
            (Token::Sign('{'), Some(depth)) => Some(depth + 1),
            (Token::Sign('}'), Some(depth)) => (depth > 1).then_some(depth - 1),
            (_, depth) => depth,
        };
        match tokens[at..] {
            [(Token::Sign('{' | ',' | ';'), _), (Token::Name(name), line), (Token::Sign('='), _), ..]
                if depth == Some(1) =>
            {
                found.push(Member { name, line, value: Assigned::At(at + 3) });
            }
            [(Token::Name(of), _), (Token::Sign('.' | ':'), _), (Token::Name(name), line), (next, _), ..]
                if matches!(returned, Returned::Variable(handler) if handler == of) =>
            {
                let before = at.checked_sub(1).map(|before| tokens[before].0);
                let value = match (before, next) {
                    (Some(Token::Name("function")), _) => Some(Assigned::Function),
                    (_, Token::Sign(',')) => {
                        is_assigned_after(&tokens[at + 3..]).then_some(Assigned::Unknown)
                    }
                    _ if !is_assigned(&tokens[at + 3..]) => None,
                    (Some(Token::Sign(',')), _) => Some(Assigned::Unknown),
                    _ => Some(Assigned::At(at + 4)),
                };
                found.extend(value.map(|value| Member { name, line, value }));
            }
            _ => {}
        }
    }
    found
}

/// Whether what follows begins with the sign of an assignment.
fn is_assigned(tokens: &Tokens<'_>) -> bool {
    match tokens {
        [(Token::Sign('='), _), (next, _), ..] => *next != Token::Sign('='),
        _ => false,
    }
}

/// Whether what follows are further variables, as in `a.x, b.y = 1, 2`, and the sign of their assignment.
fn is_assigned_after(mut tokens: &Tokens<'_>) -> bool {
    while let [(Token::Sign(',' | '.'), _), (Token::Name(_), _), rest @ ..] = tokens {
        tokens = rest;
    }
    is_assigned(tokens)
}

/// Whether the table that begins here is the handler.
fn is_handler(tokens: &Tokens<'_>, at: usize, returned: Returned<'_>) -> bool {
    match (returned, &tokens[..at]) {
        (Returned::Table(start), _) => start == at,
        (Returned::Variable(handler), [.., (Token::Name(name), _), (Token::Sign('='), _)]) => {
            *name == handler
        }
        _ => false,
    }
}
