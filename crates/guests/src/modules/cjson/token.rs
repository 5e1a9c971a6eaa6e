//! The tokens of a JSON text, as lua-cjson reads it: numbers may be what `strtod` takes, a NUL byte ends the text.

use crate::modules::number;

/// One token. Errors are tokens too, because the message says what would have stood in their place.
#[derive(Debug)]
pub(super) enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    Error(&'static str),
}

impl Token {
    /// What lua-cjson calls it in errors.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::ObjectBegin => "T_OBJ_BEGIN",
            Self::ObjectEnd => "T_OBJ_END",
            Self::ArrayBegin => "T_ARR_BEGIN",
            Self::ArrayEnd => "T_ARR_END",
            Self::String(_) => "T_STRING",
            Self::Number(_) => "T_NUMBER",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Null => "T_NULL",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::End => "T_END",
            Self::Error(reason) => reason,
        }
    }
}

/// A text and how far it is read.
pub(super) struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
    /// Where the token that was read last begins, or where it is wrong.
    start: usize,
    /// Whether numbers may be hexadecimal, infinite or not a number.
    invalid_numbers: bool,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a [u8], invalid_numbers: bool) -> Self {
        Self { text, at: 0, start: 0, invalid_numbers }
    }

    pub(super) fn text(&self) -> &'a [u8] {
        self.text
    }

    /// The position of the last token, counted from 1.
    pub(super) fn position(&self) -> usize {
        self.start + 1
    }

    pub(super) fn next(&mut self) -> Token {
        self.skip_space();
        self.start = self.at;
        let token = match self.text.get(self.at) {
            None | Some(0) => return Token::End,
            Some(b'{') => Token::ObjectBegin,
            Some(b'}') => Token::ObjectEnd,
            Some(b'[') => Token::ArrayBegin,
            Some(b']') => Token::ArrayEnd,
            Some(b':') => Token::Colon,
            Some(b',') => Token::Comma,
            Some(b'"') => return self.string(),
            Some(b'-' | b'0'..=b'9') => return self.number(),
            Some(_) => return self.word(),
        };
        self.at += 1;
        token
    }

    /// Reads the end of an array, if it comes next.
    pub(super) fn take_array_end(&mut self) -> bool {
        self.skip_space();
        let ends = self.text.get(self.at) == Some(&b']');
        self.at += usize::from(ends);
        ends
    }

    fn skip_space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn word(&mut self) -> Token {
        for (word, token) in
            [("true", Token::Boolean(true)), ("false", Token::Boolean(false)), ("null", Token::Null)]
        {
            if self.text[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return token;
            }
        }
        match self.text[self.at] {
            b'+' | b'i' | b'I' | b'n' | b'N' if self.invalid_numbers && self.is_irregular() => self.number(),
            _ => Token::Error("invalid token"),
        }
    }

    fn number(&mut self) -> Token {
        if !self.invalid_numbers && self.is_irregular() {
            return Token::Error("invalid number");
        }
        match number::parse(&self.text[self.at..]) {
            Some((value, len)) => {
                self.at += len;
                Token::Number(value)
            }
            None => Token::Error("invalid number"),
        }
    }

    /// Whether what follows is a number that JSON does not have.
    fn is_irregular(&self) -> bool {
        let text = &self.text[self.at..];
        match text.strip_prefix(b"-").unwrap_or(text) {
            [b'+', ..] => true,
            [b'0', next, ..] => next.eq_ignore_ascii_case(&b'x') || next.is_ascii_digit(),
            [a, b, c, ..] => matches!(&[*a, *b, *c].map(|byte| byte.to_ascii_lowercase()), b"inf" | b"nan"),
            _ => false,
        }
    }

    fn string(&mut self) -> Token {
        let mut text = Vec::new();
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0)).unwrap_or(rest.len());
            text.extend_from_slice(&rest[..plain]);
            self.at += plain;
            match rest.get(plain) {
                Some(b'"') => {
                    self.at += 1;
                    return Token::String(text);
                }
                Some(b'\\') => match self.escape(&mut text) {
                    Ok(len) => self.at += len,
                    Err(reason) => return self.error(reason),
                },
                _ => return self.error("unexpected end of string"),
            }
        }
    }

    fn error(&mut self, reason: &'static str) -> Token {
        self.start = self.at;
        Token::Error(reason)
    }

    /// Appends what the escape at the present place stands for, and returns its length.
    fn escape(&self, text: &mut Vec<u8>) -> Result<usize, &'static str> {
        let byte = match self.text.get(self.at + 1) {
            Some(plain @ (b'"' | b'\\' | b'/')) => *plain,
            Some(b'b') => 0x08,
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'f') => 0x0c,
            Some(b'r') => b'\r',
            Some(b'u') => {
                let (character, len) = self.unicode().ok_or("invalid unicode escape code")?;
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(len);
            }
            _ => return Err("invalid escape code"),
        };
        text.push(byte);
        Ok(2)
    }

    /// The character of `\uXXXX`, or of a pair of surrogates, and its length.
    fn unicode(&self) -> Option<(char, usize)> {
        let first = self.hex(self.at + 2)?;
        if !(0xd800..0xe000).contains(&first) {
            return Some((char::from_u32(first)?, 6));
        }
        if !self.text[self.at + 6..].starts_with(b"\\u") {
            return None;
        }
        let second = self.hex(self.at + 8)?;
        let low = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
        let high = first.checked_sub(0xd800).filter(|high| *high < 0x400)?;
        Some((char::from_u32(0x10000 + (high << 10) + low)?, 12))
    }

    fn hex(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 4)?;
        digits.iter().try_fold(0, |value, byte| Some(value * 16 + char::from(*byte).to_digit(16)?))
    }
}
