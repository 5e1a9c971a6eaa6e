//! The methods of a handler, as far as its text shows them.

use super::needs::Missing;
use super::tokens::Token;
use std::path::Path;

/// Methods that a handler cannot have beside `response`, which gets the whole response.
const NOT_BESIDE_RESPONSE: [&str; 2] = ["header_filter", "body_filter"];

/// A method `response` in a `handler.lua` that has a filter, too: such a plugin cannot be loaded.
pub(super) fn contradiction(file: &Path, tokens: &[(Token<'_>, usize)]) -> Option<Missing> {
    let tokens = if file.file_name().is_some_and(|name| name == "handler.lua") { tokens } else { &[] };
    let declared = methods(tokens);
    let line = |method| declared.iter().find(|(name, _)| *name == method).map(|(_, line)| *line);
    let response = line("response")?;
    let filter = NOT_BESIDE_RESPONSE.into_iter().find(|filter| line(filter).is_some())?;
    let message = format!(
        "a handler with `response` cannot have `{filter}`: do its work in `response`, which gets the headers and the body"
    );
    Some(Missing { file: file.to_owned(), line: response, message })
}

/// The members of the table that the file returns, with their lines: `function Handler:name`, `Handler.name =`, and `name =` in
/// the table itself.
fn methods<'t>(tokens: &[(Token<'t>, usize)]) -> Vec<(&'t str, usize)> {
    let handler = match tokens {
        [.., (Token::Name("return"), _), (Token::Name(name), _)] => Some(*name),
        _ => None,
    };
    let (mut found, mut depth) = (Vec::new(), None);
    for at in 0..tokens.len() {
        let is_table =
            matches!(&tokens[at..], [(Token::Sign('{'), _), ..]) && is_handler(&tokens[..at], handler);
        depth = match (tokens[at].0, depth) {
            (Token::Sign('{'), None) => is_table.then_some(1),
            (Token::Sign('{'), Some(depth)) => Some(depth + 1),
            (Token::Sign('}'), Some(depth)) => (depth > 1).then_some(depth - 1),
            (_, depth) => depth,
        };
        match tokens[at..] {
            [(Token::Sign('{' | ',' | ';'), _), (Token::Name(name), line), (Token::Sign('='), _), ..]
                if depth == Some(1) =>
            {
                found.push((name, line));
            }
            [(Token::Name(of), _), (Token::Sign('.' | ':'), _), (Token::Name(name), line), (next, _), ..]
                if Some(of) == handler =>
            {
                let is_function = at > 0 && tokens[at - 1].0 == Token::Name("function");
                found.extend((is_function || next == Token::Sign('=')).then_some((name, line)));
            }
            _ => {}
        }
    }
    found
}

/// Whether a table that follows is the handler.
fn is_handler(before: &[(Token<'_>, usize)], handler: Option<&str>) -> bool {
    match (before, handler) {
        ([.., (Token::Name(name), _), (Token::Sign('='), _)], Some(handler)) => *name == handler,
        ([.., (Token::Name("return"), _)], None) => true,
        _ => false,
    }
}
