//! Matches a pattern of Lua 5.1 at one position of a subject, by backtracking.
//!
//! A pattern ends at its first NUL byte, as in LuaJIT. Every item that is tried takes a step of the budget.

use super::class;
use super::error::PatternError;
use crate::steps::{OutOfSteps, Steps};

/// How many captures a pattern may have.
const MAX_CAPTURES: usize = 32;
/// How deep items may nest before the pattern is too complex.
const MAX_DEPTH: usize = 200;

/// An item of so few bytes is read within the step that trying it takes.
const SHORT_SET: usize = 8;

/// What a pair of parentheses has captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Capture {
    /// The closing parenthesis is not reached.
    Open(usize),
    /// `()`: a position.
    Position(usize),
    /// A part of the subject: start and end.
    Text(usize, usize),
}

type Outcome = Result<Option<usize>, PatternError>;

/// A pattern applied to a subject.
pub(super) struct Matcher<'a> {
    subject: &'a [u8],
    pattern: &'a [u8],
    steps: &'a Steps,
    depth: usize,
    captures: Vec<Capture>,
}

impl<'a> Matcher<'a> {
    pub(super) fn new(subject: &'a [u8], pattern: &'a [u8], steps: &'a Steps) -> Self {
        let end = pattern.iter().position(|byte| *byte == 0).unwrap_or(pattern.len());
        Self { subject, pattern: &pattern[..end], steps, depth: 0, captures: Vec::new() }
    }

    /// The captures of the match that was found last.
    pub(super) fn captures(&self) -> &[Capture] {
        &self.captures
    }

    /// The end of the match that begins at `at`; none if there is none.
    pub(super) fn match_at(&mut self, at: usize) -> Outcome {
        self.captures.clear();
        self.depth = 0;
        self.run(at, 0)
    }

    /// Matches the pattern from `p` on against the subject from `s` on.
    fn run(&mut self, s: usize, p: usize) -> Outcome {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(PatternError::TooComplex);
        }
        let end = self.items(s, p)?;
        self.depth -= 1;
        Ok(end)
    }

    fn items(&mut self, mut s: usize, mut p: usize) -> Outcome {
        loop {
            self.steps.take()?;
            (s, p) = match (self.pattern.get(p), self.pattern.get(p + 1)) {
                (None, _) => return Ok(Some(s)),
                (Some(b'('), Some(b')')) => return self.open(Capture::Position(s), s, p + 2),
                (Some(b'('), _) => return self.open(Capture::Open(s), s, p + 1),
                (Some(b')'), _) => return self.close(s, p + 1),
                (Some(b'%'), Some(b'b')) => match self.balance(s, p + 2)? {
                    Some(end) => (end, p + 4),
                    None => return Ok(None),
                },
                (Some(b'%'), Some(b'f')) => match self.frontier(s, p + 2)? {
                    Some(next) => (s, next),
                    None => return Ok(None),
                },
                (Some(b'%'), Some(digit)) if digit.is_ascii_digit() => {
                    match self.repeat_capture(s, *digit)? {
                        Some(end) => (end, p + 2),
                        None => return Ok(None),
                    }
                }
                (Some(b'$'), None) => return Ok((s == self.subject.len()).then_some(s)),
                _ => match self.single(s, p)? {
                    Next::Continue(s, p) => (s, p),
                    Next::Done(end) => return Ok(end),
                },
            };
        }
    }

    /// A single item with the quantifier that may follow it.
    fn single(&mut self, s: usize, p: usize) -> Result<Next, PatternError> {
        let end = self.item_end(p)?;
        self.take_set(end - p)?;
        let hit = self.hit(s, p, end);
        Ok(match self.pattern.get(end) {
            Some(b'?') => {
                if hit && let Some(end) = self.run(s + 1, end + 1)? {
                    return Ok(Next::Done(Some(end)));
                }
                Next::Continue(s, end + 1)
            }
            Some(b'*') => Next::Done(self.longest(s, p, end)?),
            Some(b'+') if hit => Next::Done(self.longest(s + 1, p, end)?),
            Some(b'-') => Next::Done(self.shortest(s, p, end)?),
            Some(b'+') => Next::Done(None),
            _ if hit => Next::Continue(s + 1, end),
            _ => Next::Done(None),
        })
    }

    /// Takes the steps for reading an item of so many bytes: sets may be long.
    fn take_set(&self, bytes: usize) -> Result<(), OutOfSteps> {
        match bytes {
            0..=SHORT_SET => Ok(()),
            bytes => self.steps.take_many(bytes),
        }
    }

    /// Whether the item `p..end` matches the byte at `s`.
    fn hit(&self, s: usize, p: usize, end: usize) -> bool {
        self.subject.get(s).is_some_and(|byte| class::matches(*byte, &self.pattern[p..end]))
    }

    /// As many of the item as there are, then fewer.
    fn longest(&mut self, s: usize, p: usize, end: usize) -> Outcome {
        let mut count = 0;
        while self.hit(s + count, p, end) {
            self.steps.take()?;
            self.take_set(end - p)?;
            count += 1;
        }
        for count in (0..=count).rev() {
            if let Some(end) = self.run(s + count, end + 1)? {
                return Ok(Some(end));
            }
        }
        Ok(None)
    }

    /// As few of the item as will do.
    fn shortest(&mut self, mut s: usize, p: usize, end: usize) -> Outcome {
        loop {
            if let Some(end) = self.run(s, end + 1)? {
                return Ok(Some(end));
            }
            self.take_set(end - p)?;
            if !self.hit(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn open(&mut self, capture: Capture, s: usize, p: usize) -> Outcome {
        if self.captures.len() >= MAX_CAPTURES {
            return Err(PatternError::TooManyCaptures);
        }
        let level = self.captures.len();
        self.captures.push(capture);
        let end = self.run(s, p)?;
        if end.is_none() {
            self.captures.truncate(level);
        }
        Ok(end)
    }

    fn close(&mut self, s: usize, p: usize) -> Outcome {
        let open = self.captures.iter().rposition(|capture| matches!(capture, Capture::Open(_)));
        let Some((index, Capture::Open(start))) = open.map(|index| (index, self.captures[index])) else {
            return Err(PatternError::InvalidCapture);
        };
        self.captures[index] = Capture::Text(start, s);
        let end = self.run(s, p)?;
        if end.is_none() {
            self.captures[index] = Capture::Open(start);
        }
        Ok(end)
    }

    /// `%bxy`: from an `x` to the `y` that balances it.
    fn balance(&self, s: usize, p: usize) -> Outcome {
        let (Some(open), Some(close)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return Err(PatternError::Unbalanced);
        };
        if self.subject.get(s) != Some(open) {
            return Ok(None);
        }
        let mut nesting = 1_usize;
        for (offset, byte) in self.subject[s + 1..].iter().enumerate() {
            self.steps.take()?;
            if byte == close {
                nesting -= 1;
                if nesting == 0 {
                    return Ok(Some(s + offset + 2));
                }
            } else if byte == open {
                nesting += 1;
            }
        }
        Ok(None)
    }

    /// `%f[set]`: the item after it, if the set begins at `s`.
    fn frontier(&self, s: usize, p: usize) -> Outcome {
        if self.pattern.get(p) != Some(&b'[') {
            return Err(PatternError::MissingSet);
        }
        let end = self.item_end(p)?;
        self.take_set(end - p)?;
        let set = &self.pattern[p..end];
        let before = if s == 0 { 0 } else { self.subject[s - 1] };
        let here = self.subject.get(s).copied().unwrap_or(0);
        Ok((!class::in_set(before, set) && class::in_set(here, set)).then_some(end))
    }

    /// `%1`: what a capture has captured, once more.
    fn repeat_capture(&self, s: usize, digit: u8) -> Outcome {
        let index = usize::from(digit).checked_sub(usize::from(b'1')).ok_or(PatternError::CaptureIndex)?;
        match self.captures.get(index) {
            None | Some(Capture::Open(_)) => Err(PatternError::CaptureIndex),
            Some(Capture::Position(_)) => Ok(None),
            Some(Capture::Text(start, end)) => {
                let text = &self.subject[*start..*end];
                self.steps.take_many(text.len())?;
                Ok(self.subject[s..].starts_with(text).then_some(s + text.len()))
            }
        }
    }

    /// Where the single item that begins at `p` ends.
    fn item_end(&self, p: usize) -> Result<usize, PatternError> {
        match self.pattern[p] {
            b'%' if p + 1 == self.pattern.len() => Err(PatternError::EndsWithPercent),
            b'%' => Ok(p + 2),
            b'[' => self.set_end(p + 1),
            _ => Ok(p + 1),
        }
    }

    /// Where a set ends. A `]` that comes first is a member.
    fn set_end(&self, mut p: usize) -> Result<usize, PatternError> {
        if self.pattern.get(p) == Some(&b'^') {
            p += 1;
        }
        let first = p;
        loop {
            match self.pattern.get(p) {
                None => return Err(PatternError::MissingBracket),
                Some(b']') if p > first => return Ok(p + 1),
                Some(b'%') if p + 1 < self.pattern.len() => p += 2,
                Some(_) => p += 1,
            }
        }
    }
}

/// What follows a single item.
enum Next {
    /// Go on at this place of the subject and of the pattern.
    Continue(usize, usize),
    /// The match ends here, or fails.
    Done(Option<usize>),
}
