//! The syntax of nginx's configuration: directives with their values, in blocks.
use std::iter::Peekable;
use std::str::Chars;

/// A directive.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Statement {
    /// Counted from 1.
    pub(super) line: usize,
    pub(super) directive: String,
    /// What follows it, without quotes, separated by spaces.
    pub(super) value: String,
    /// Whether it stands in a block of the file.
    pub(super) is_in_block: bool,
}

/// The directives of a text, those of its blocks among them; an error says in which line it breaks off.
pub(super) fn statements(text: &str) -> Result<Vec<Statement>, String> {
    let mut lexer = Lexer { rest: text.chars().peekable(), line: 1 };
    let (mut found, mut depth, mut line, mut words) = (Vec::new(), 0_usize, 0, Vec::<String>::new());
    while let Some(token) = lexer.token()? {
        let is_open = token == Token::Open;
        match token {
            Token::Word(word) => {
                if words.is_empty() {
                    line = lexer.line;
                }
                words.push(word);
                continue;
            }
            Token::Open if words.first().is_some_and(|name| name.ends_with("_by_lua_block")) => {
                lexer.skip_block()
            }
            Token::Open => depth += 1,
            Token::Close => depth = depth.saturating_sub(1),
            Token::End => {}
        }
        let is_in_block = depth > usize::from(is_open);
        found.extend(statement(&mut words, line, is_in_block));
    }
    match words.first() {
        Some(unended) => Err(format!("line {line}: `{unended}` is not ended by `;`")),
        None => Ok(found),
    }
}

fn statement(words: &mut Vec<String>, line: usize, is_in_block: bool) -> Option<Statement> {
    let mut words = words.drain(..);
    let directive = words.next()?;
    let value = words.collect::<Vec<_>>().join(" ");
    Some(Statement { line, directive, value, is_in_block })
}

#[derive(PartialEq, Eq)]
enum Token {
    Word(String),
    /// `;`
    End,
    /// `{`
    Open,
    /// `}`
    Close,
}

struct Lexer<'t> {
    rest: Peekable<Chars<'t>>,
    line: usize,
}

impl Lexer<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn token(&mut self) -> Result<Option<Token>, String> {
        while let Some(first) = self.next() {
            return Ok(Some(match first {
                _ if first.is_whitespace() => continue,
                '#' => {
                    while self.next().is_some_and(|it| it != '\n') {}
                    continue;
                }
                ';' => Token::End,
                '{' => Token::Open,
                '}' => Token::Close,
                '"' | '\'' => Token::Word(self.quoted(first)?),
                first => Token::Word(self.word(first)),
            }));
        }
        Ok(None)
    }

    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let (line, mut text) = (self.line, String::new());
        while let Some(next) = self.next() {
            match next {
                '\\' => text.extend(self.next()),
                _ if next == quote => return Ok(text),
                _ => text.push(next),
            }
        }
        Err(format!("line {line}: a quote is not closed"))
    }

    fn word(&mut self, first: char) -> String {
        let mut word = String::from(first);
        let ends = |next: &char, word: &str| {
            // A variable: `${name}`.
            let is_brace = *next == '{' && word.ends_with('$') || *next == '}' && word.contains("${");
            next.is_whitespace() || matches!(next, ';' | '{' | '}') && !is_brace
        };
        while let Some(next) = self.rest.next_if(|next| !ends(next, &word)) {
            word.push(next);
        }
        word
    }

    /// Passes over a block of Lua, up to its last brace.
    fn skip_block(&mut self) {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.next() {
                Some('{') => depth += 1,
                Some('}') => depth -= 1,
                Some(_) => {}
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let shown = |it: Statement| {
            let depth = if it.is_in_block { "  " } else { "" };
            format!("{}:{depth}{}={}", it.line, it.directive, it.value)
        };
        statements(text).unwrap().into_iter().map(shown).collect()
    }

    #[test]
    fn directives_are_read_with_their_blocks() {
        for (text, expected) in [
            ("", &[] as &[&str]),
            (
                "gzip on; # deny all;\n\nkeepalive_timeout  5s\n 6s;",
                &["1:gzip=on", "3:keepalive_timeout=5s 6s"],
            ),
            ("log_format a '{\"x\": $y; \\'}';", &["1:log_format=a {\"x\": $y; '}"]),
            ("location / {\n deny all;\n}\ngzip on;", &["1:location=/", "2:  deny=all", "4:gzip=on"]),
            ("set $a ${b}c;", &["1:set=$a ${b}c"]),
            (
                "access_by_lua_block { if a then b = { 1 } end -- it's }\ngzip on;",
                &["1:access_by_lua_block=", "2:gzip=on"],
            ),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
        assert_eq!(statements("gzip on").unwrap_err(), "line 1: `gzip` is not ended by `;`");
    }
}
