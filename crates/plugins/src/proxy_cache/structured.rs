//! Dictionaries of structured fields (RFC 9651), as far as caches need them.

/// A member's value. Its parameters have no meaning.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    True,
    /// Digits, without a sign.
    Integer(String),
    String(String),
    /// Of a type that no directive has.
    Other,
}

/// The members in order; none if the text is not a dictionary.
pub(super) fn dictionary(text: &[u8]) -> Option<Vec<(String, Item)>> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.is_ascii())?;
    let mut rest = Reader(text.trim_matches(' '));
    let mut members = Vec::new();
    while !rest.0.is_empty() {
        let name = rest.key()?;
        let item = if rest.takes('=') { rest.item_or_list()? } else { Item::True };
        rest.parameters()?;
        members.push((name, item));
        rest.skip_blank();
        if rest.0.is_empty() {
            break;
        }
        let ends = !rest.takes(',');
        rest.skip_blank();
        if ends || rest.0.is_empty() {
            return None;
        }
    }
    Some(members)
}

/// What is left to read.
struct Reader<'t>(&'t str);

impl<'t> Reader<'t> {
    fn takes(&mut self, wanted: char) -> bool {
        let rest = self.0.strip_prefix(wanted);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn skip_blank(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t']);
    }

    /// The longest run of such characters.
    fn run(&mut self, is_part: impl Fn(char) -> bool) -> &'t str {
        let (run, rest) = self.0.split_at(self.0.find(|c| !is_part(c)).unwrap_or(self.0.len()));
        self.0 = rest;
        run
    }

    fn key(&mut self) -> Option<String> {
        let first = self.0.chars().next().filter(|first| first.is_ascii_lowercase() || *first == '*');
        let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c);
        first.map(|_| self.run(is_part).to_owned())
    }

    fn item_or_list(&mut self) -> Option<Item> {
        if !self.takes('(') {
            return self.item();
        }
        loop {
            self.0 = self.0.trim_start_matches(' ');
            if self.takes(')') {
                return Some(Item::Other);
            }
            self.item()?;
            self.parameters()?;
            if !self.0.starts_with([' ', ')']) {
                return None;
            }
        }
    }

    fn item(&mut self) -> Option<Item> {
        match self.0.chars().next()? {
            '"' => self.string(),
            '?' => self.boolean(),
            ':' => self.bytes(),
            '@' => {
                self.takes('@');
                self.number().map(|_| Item::Other)
            }
            '-' | '0'..='9' => self.number(),
            first if first.is_ascii_alphabetic() || first == '*' => {
                self.run(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~:/".contains(c));
                Some(Item::Other)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Item> {
        let is_negative = self.takes('-');
        let whole = self.run(|c| c.is_ascii_digit());
        let fraction = self.takes('.').then(|| self.run(|c| c.is_ascii_digit()));
        let is_valid = !whole.is_empty()
            && whole.len() <= if fraction.is_some() { 12 } else { 15 }
            && fraction.is_none_or(|fraction| (1..=3).contains(&fraction.len()));
        is_valid.then(|| match fraction {
            None if !is_negative => Item::Integer(whole.to_owned()),
            _ => Item::Other,
        })
    }

    fn string(&mut self) -> Option<Item> {
        let (mut text, mut characters) = (String::new(), self.0[1..].char_indices());
        while let Some((at, c)) = characters.next() {
            match c {
                '"' => {
                    self.0 = &self.0[at + 2..];
                    return Some(Item::String(text));
                }
                '\\' => text.push(characters.next().map(|(_, c)| c).filter(|c| "\"\\".contains(*c))?),
                ' '..='~' => text.push(c),
                _ => return None,
            }
        }
        None
    }

    fn boolean(&mut self) -> Option<Item> {
        self.takes('?');
        match self.takes('1') {
            true => Some(Item::True),
            false => self.takes('0').then_some(Item::Other),
        }
    }

    fn bytes(&mut self) -> Option<Item> {
        self.takes(':');
        self.run(|c| c.is_ascii_alphanumeric() || "+/=".contains(c));
        self.takes(':').then_some(Item::Other)
    }

    fn parameters(&mut self) -> Option<()> {
        while self.takes(';') {
            self.0 = self.0.trim_start_matches(' ');
            self.key()?;
            if self.takes('=') {
                self.item()?;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionaries_are_read_or_refused_whole() {
        let text =
            br#"a, b=12;x=?0;y="1", c="q\"",  d=-1, e=1.5, f=tok/en, g=:YQ==:, h=(1 "2");z, i=?0, *j=@9"#;
        let found: Vec<_> = dictionary(text).unwrap();
        let item = |name: &str| &found.iter().find(|(known, _)| known == name).unwrap().1;
        assert_eq!((item("a"), item("b")), (&Item::True, &Item::Integer("12".into())));
        assert_eq!(item("c"), &Item::String("q\"".into()));
        assert!("defghi".chars().all(|name| *item(&name.to_string()) == Item::Other));
        assert_eq!(dictionary(b""), Some(Vec::new()));
        for invalid in [
            "a,",
            ",a",
            "A=1",
            "a=",
            "a =1",
            "a= 1",
            "a=1 2",
            "a=\"",
            "a=(1",
            "a=(1,2)",
            "a=?2",
            "a=:b",
            "a=&",
            "a;",
            "a;b=",
            "a=1234567890123456",
            "a=1.",
            "a=1.2345",
            "\u{e4}",
            "a=\"\\x\"",
        ] {
            assert_eq!(dictionary(invalid.as_bytes()), None, "{invalid}");
        }
    }
}
