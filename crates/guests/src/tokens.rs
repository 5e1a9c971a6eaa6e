//! The words of Lua's source text, as far as names, texts and signs go.

use std::ops::Range;

/// A word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'t> {
    /// A name or a keyword.
    Name(&'t str),
    /// A text between quotes.
    Text(&'t str),
    /// Any other character.
    Sign(char),
}

/// Words, each with its line.
pub(crate) type Tokens<'t> = [(Token<'t>, usize)];

impl<'t> Token<'t> {
    /// The name, if it is one.
    pub(crate) fn name(self) -> Option<&'t str> {
        match self {
            Token::Name(name) => Some(name),
            _ => None,
        }
    }
}

/// The words of a text, each with its line, without comments.
pub(crate) fn tokens(text: &str) -> Vec<(Token<'_>, usize)> {
    let (mut found, mut rest, mut line) = (Vec::new(), text, 1);
    while let Some(first) = rest.chars().next() {
        let (token, length) = next(rest, first);
        found.extend(token.map(|token| (token, line)));
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    found
}

/// Whether what stands at these tokens is only asked whether it is there: `if x.y then`, `x.y and …`, `type(x.y) == …`.
pub(crate) fn is_condition(tokens: &Tokens<'_>, at: Range<usize>) -> bool {
    let next = tokens[at.end.min(tokens.len())..].first().map(|(token, _)| *token);
    match (&tokens[..at.start], next) {
        (_, Some(Token::Name("then" | "and" | "or" | "do"))) => true,
        (_, Some(Token::Sign('~'))) => true,
        (_, Some(Token::Sign('='))) => matches!(tokens.get(at.end + 1), Some((Token::Sign('='), _))),
        ([.., (Token::Name(before), _), (Token::Sign('('), _)], Some(Token::Sign(')'))) => {
            matches!(*before, "if" | "elseif" | "while" | "not" | "and" | "or" | "type")
        }
        _ => false,
    }
}

/// The word that a text begins with, and how many bytes it takes.
fn next(text: &str, first: char) -> (Option<Token<'_>>, usize) {
    if let Some(comment) = text.strip_prefix("--") {
        let long = long_text(comment).map(|(_, length)| length);
        return (None, 2 + long.unwrap_or_else(|| comment.find('\n').unwrap_or(comment.len())));
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = text.find(|c| !is_part(c)).unwrap_or(text.len());
        return (Some(Token::Name(&text[..length])), length);
    }
    if let Some((content, length)) = long_text(text) {
        return (Some(Token::Text(content)), length);
    }
    match first {
        '"' | '\'' => quoted(text, first),
        c if c.is_whitespace() => (None, c.len_utf8()),
        c => (Some(Token::Sign(c)), c.len_utf8()),
    }
}

fn quoted(text: &str, quote: char) -> (Option<Token<'_>>, usize) {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' => return (Some(Token::Text(&text[1..at])), at),
            c if c == quote => return (Some(Token::Text(&text[1..at])), at + 1),
            _ => {}
        }
    }
    (None, text.len())
}

/// A text in long brackets, `[[x]]` or `[==[x]==]`, and how many bytes it takes with them.
fn long_text(text: &str) -> Option<(&str, usize)> {
    let level = text.strip_prefix('[')?.find(|c| c != '=')?;
    let opened = 1 + level;
    let content = text[opened..].strip_prefix('[')?;
    let end = format!("]{}]", "=".repeat(level));
    let length = content.find(&end).unwrap_or(content.len());
    let closed = (opened + 1 + length + end.len()).min(text.len());
    Some((&content[..length], closed))
}

#[cfg(test)]
mod tests {
    use super::{Token::*, tokens};

    #[test]
    fn comments_and_texts_are_told_from_code() {
        let text = "local a = require 'x.y' -- kong.b\n--[[ kong\n.c ]] return [==[ ]] ]==], \"q\\\"\", a.b";
        let found: Vec<_> = tokens(text).into_iter().map(|(token, _)| token).collect();
        let expected = [
            Name("local"),
            Name("a"),
            Sign('='),
            Name("require"),
            Text("x.y"),
            Name("return"),
            Text(" ]] "),
            Sign(','),
            Text("q\\\""),
            Sign(','),
            Name("a"),
            Sign('.'),
            Name("b"),
        ];
        assert_eq!(found, expected);
        assert_eq!(tokens(text).last().map(|(_, line)| *line), Some(3));
    }
}
