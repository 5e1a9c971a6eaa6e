//! `string.find`, `match`, `gmatch` and `gsub` on the [`Matcher`].

use mlua::{Function, IntoLua, Lua, LuaString, MultiValue, Table, Value};

use super::error::PatternError;
use super::matcher::{Capture, Matcher};
use crate::args;
use crate::raise::{self, Checked, Raised};
use crate::steps::Steps;

impl From<PatternError> for Raised {
    fn from(error: PatternError) -> Self {
        match error {
            PatternError::OutOfSteps(error) => error.into(),
            error => Self::Text(error.to_string()),
        }
    }
}

/// Replaces the functions of the table `string`.
pub(super) fn install(lua: &Lua, string: &Table, steps: &Steps) -> mlua::Result<()> {
    string.raw_set("find", find(lua, steps.clone())?)?;
    string.raw_set("match", match_first(lua, steps.clone())?)?;
    let primitives = (scan(lua, steps.clone())?, strings(lua)?, replace(lua, steps.clone())?);
    let chunk = lua.load(include_str!("string.lua")).set_name("=[string]");
    let (gmatch, gsub): (Function, Function) = chunk.call(primitives)?;
    string.raw_set("gmatch", gmatch)?;
    string.raw_set("gsub", gsub)
}

/// `string.find(s, pattern [, init [, plain]])`
fn find(lua: &Lua, steps: Steps) -> mlua::Result<Function> {
    raise::function(lua, move |lua, (subject, pattern, init, plain): (Value, Value, Value, Value)| {
        let (subject, pattern) = operands(lua, "find", &subject, &pattern)?;
        let (subject, pattern) = (&*subject.as_bytes(), &*pattern.as_bytes());
        let Some(init) = start(subject.len(), args::integer(lua, "find", 3, &init, 1)?) else {
            return Ok(nothing());
        };
        if args::truthy(&plain) || !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte)) {
            steps.take_bytes(subject.len() - init + pattern.len())?;
            let found = memchr::memmem::find(&subject[init..], pattern).map(|at| init + at);
            return Ok(span(found.map(|at| (at, at + pattern.len()))));
        }
        let (anchored, pattern) = anchor(pattern);
        let mut matcher = Matcher::new(subject, pattern, &steps);
        let found = search(&mut matcher, subject, init, anchored)?;
        let mut values = span(found);
        if found.is_some() {
            push_captures(lua, &mut values, subject, matcher.captures())?;
        }
        Ok(values)
    })
}

/// `string.match(s, pattern [, init])`
fn match_first(lua: &Lua, steps: Steps) -> mlua::Result<Function> {
    raise::function(lua, move |lua, (subject, pattern, init): (Value, Value, Value)| {
        let (subject, pattern) = operands(lua, "match", &subject, &pattern)?;
        let (subject, pattern) = (&*subject.as_bytes(), &*pattern.as_bytes());
        let Some(init) = start(subject.len(), args::integer(lua, "match", 3, &init, 1)?) else {
            return Ok(nothing());
        };
        let (anchored, pattern) = anchor(pattern);
        let mut matcher = Matcher::new(subject, pattern, &steps);
        match search(&mut matcher, subject, init, anchored)? {
            Some(found) => whole_or_captures(lua, MultiValue::new(), subject, found, matcher.captures()),
            None => Ok(nothing()),
        }
    })
}

/// The next match from a position on: its start, the position after its end, and its captures. `nil` if there is none;
/// `false` and a message if the pattern is malformed. `first` leaves all captures but the first unread.
fn scan(lua: &Lua, steps: Steps) -> mlua::Result<Function> {
    type Arguments = (LuaString, LuaString, usize, bool, bool);
    lua.create_function(move |lua, (subject, pattern, at, anchored, first): Arguments| {
        let (subject, pattern) = (&*subject.as_bytes(), &*pattern.as_bytes());
        let pattern = if anchored { &pattern[1..] } else { pattern };
        let mut matcher = Matcher::new(subject, pattern, &steps);
        let outcome = match search(&mut matcher, subject, at - 1, anchored) {
            Ok(None) => return Ok(MultiValue::from_vec(vec![Value::Nil])),
            Ok(Some(found)) => {
                let values = vec![Value::Integer(found.0 as i64 + 1), Value::Integer(found.1 as i64 + 1)];
                let captures = matcher.captures();
                let captures = if first { &captures[..captures.len().min(1)] } else { captures };
                whole_or_captures(lua, MultiValue::from_vec(values), subject, found, captures)
            }
            Err(error) => Err(error.into()),
        };
        match outcome {
            Ok(values) => Ok(values),
            Err(Raised::Text(text)) => {
                Ok(MultiValue::from_vec(vec![Value::Boolean(false), text.into_lua(lua)?]))
            }
            Err(Raised::Vm(error)) => Err(error),
        }
    })
}

/// The arguments of `gmatch` and `gsub` as strings, and the limit as a number.
fn strings(lua: &Lua) -> mlua::Result<Function> {
    raise::function(lua, |lua, (subject, pattern, limit): (Value, Value, Value)| {
        let (subject, pattern) = operands(lua, "gsub", &subject, &pattern)?;
        let limit = args::integer(lua, "gsub", 4, &limit, i64::MAX)?;
        Ok((subject, pattern, limit))
    })
}

/// `string.gsub` with a string as the replacement.
fn replace(lua: &Lua, steps: Steps) -> mlua::Result<Function> {
    type Arguments = (Value, Value, Value, Value);
    raise::function(lua, move |lua, (subject, pattern, replacement, limit): Arguments| {
        let (subject, pattern) = operands(lua, "gsub", &subject, &pattern)?;
        let replacement = args::string(lua, "gsub", 3, &replacement)
            .map_err(|_| args::bad("gsub", 3, "string/function/table expected"))?;
        let limit = args::integer(lua, "gsub", 4, &limit, i64::MAX)?;
        let (subject, replacement) = (&*subject.as_bytes(), &*replacement.as_bytes());
        let pattern = pattern.as_bytes();
        let (anchored, pattern) = anchor(&pattern);
        let mut matcher = Matcher::new(subject, pattern, &steps);
        let (mut out, mut at, mut count) = (Vec::with_capacity(subject.len()), 0, 0);
        while count < limit && at <= subject.len() {
            let Some((from, to)) = search(&mut matcher, subject, at, anchored)? else { break };
            count += 1;
            out.extend_from_slice(&subject[at..from]);
            let before = out.len();
            expand(&mut out, replacement, subject, (from, to), matcher.captures())?;
            steps.take_bytes(out.len() - before)?;
            at = to;
            if to == from {
                out.extend_from_slice(&subject[from..subject.len().min(from + 1)]);
                at += 1;
            }
            if anchored {
                break;
            }
        }
        out.extend_from_slice(&subject[at.min(subject.len())..]);
        Ok((lua.create_string(&out)?, count))
    })
}

/// Appends the replacement of one match: `%1` is a capture, `%0` the match, `%` and another character that character.
fn expand(
    out: &mut Vec<u8>,
    replacement: &[u8],
    subject: &[u8],
    (from, to): (usize, usize),
    captures: &[Capture],
) -> Result<(), PatternError> {
    let mut bytes = replacement.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        match bytes.next().unwrap_or(0) {
            b'0' => out.extend_from_slice(&subject[from..to]),
            b'1' if captures.is_empty() => out.extend_from_slice(&subject[from..to]),
            digit @ b'1'..=b'9' => match captures.get(usize::from(digit - b'1')) {
                None => return Err(PatternError::CaptureIndex),
                Some(Capture::Open(_)) => return Err(PatternError::UnfinishedCapture),
                Some(Capture::Position(at)) => out.extend_from_slice((at + 1).to_string().as_bytes()),
                Some(Capture::Text(from, to)) => out.extend_from_slice(&subject[*from..*to]),
            },
            other => out.push(other),
        }
    }
    Ok(())
}

/// Subject and pattern as strings.
fn operands(lua: &Lua, function: &str, subject: &Value, pattern: &Value) -> Checked<(LuaString, LuaString)> {
    Ok((args::string(lua, function, 1, subject)?, args::string(lua, function, 2, pattern)?))
}

/// Where to begin, from a position that counts from 1, or from the end if it is negative. None if that is behind the end.
fn start(len: usize, init: i64) -> Option<usize> {
    let at = if init < 0 { init + len as i64 } else { init - 1 };
    usize::try_from(at.max(0)).ok().filter(|at| *at <= len)
}

/// What is returned where nothing is found.
fn nothing() -> MultiValue {
    MultiValue::from_vec(vec![Value::Nil])
}

/// Whether the pattern begins with `^`, and the rest of it.
fn anchor(pattern: &[u8]) -> (bool, &[u8]) {
    pattern.strip_prefix(b"^").map_or((false, pattern), |rest| (true, rest))
}

/// The first match from `at` on: start and end.
fn search(
    matcher: &mut Matcher<'_>,
    subject: &[u8],
    at: usize,
    anchored: bool,
) -> Result<Option<(usize, usize)>, PatternError> {
    let last = if anchored { at } else { subject.len() };
    for from in at..=last {
        if let Some(to) = matcher.match_at(from)? {
            return Ok(Some((from, to)));
        }
    }
    Ok(None)
}

/// Start and end as Lua counts them, or `nil`.
fn span(found: Option<(usize, usize)>) -> MultiValue {
    MultiValue::from_vec(match found {
        Some((from, to)) => vec![Value::Integer(from as i64 + 1), Value::Integer(to as i64)],
        None => vec![Value::Nil],
    })
}

/// Appends the captures, or the whole match if there are none.
fn whole_or_captures(
    lua: &Lua,
    mut values: MultiValue,
    subject: &[u8],
    (from, to): (usize, usize),
    captures: &[Capture],
) -> Checked<MultiValue> {
    if captures.is_empty() {
        values.push_back(Value::String(lua.create_string(&subject[from..to])?));
    }
    push_captures(lua, &mut values, subject, captures)?;
    Ok(values)
}

fn push_captures(lua: &Lua, values: &mut MultiValue, subject: &[u8], captures: &[Capture]) -> Checked<()> {
    for capture in captures {
        values.push_back(match capture {
            Capture::Open(_) => return Err(PatternError::UnfinishedCapture.into()),
            Capture::Position(at) => Value::Integer(*at as i64 + 1),
            Capture::Text(from, to) => Value::String(lua.create_string(&subject[*from..*to])?),
        });
    }
    Ok(())
}
