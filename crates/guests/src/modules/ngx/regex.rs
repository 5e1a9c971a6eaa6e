//! `ngx.re`: regular expressions in the syntax of PCRE.
//!
//! An expression without look-around and back-references is matched in linear time; others stop at a limit of
//! backtracking and of the subject's length, which reads as PCRE's error -8.

use std::rc::Rc;

use fancy_regex::{Captures, RegexInput};
use mlua::{Function, IntoLua, IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};

use super::expression::{Cache, Compiled, Failure};
use super::replace::Template;
use crate::raise::{self, Checked};
use crate::steps::{self, Steps};

/// What an expression that is not linear may be matched against, in bytes: one look-ahead may read as much at every
/// position.
const MAX_BACKTRACKED: usize = 32 << 10;

/// How much of a subject is searched between two looks at the budget.
const PART: usize = 16 << 10;

/// What a match reports that reaches a limit.
const TOO_MUCH: &str = "pcre_exec() failed: -8";

/// The functions of `ngx.re`.
pub fn table(lua: &Lua) -> mlua::Result<Table> {
    let cache = Rc::new(Cache::default());
    let steps = Steps::of(lua);
    let primitives =
        (capture(lua, &cache, &steps)?, locate(lua, &cache, &steps)?, substitute(lua, &cache, &steps)?);
    lua.load(include_str!("regex.lua")).set_name("=[ngx.re]").call(primitives)
}

/// The first match from an offset on: `start, end, captures, next`, offsets from 0. The search goes on at the last. `nil` if there is none; `false` and a
/// message if the expression is malformed or costs too much.
fn capture(lua: &Lua, cache: &Rc<Cache>, steps: &Steps) -> mlua::Result<Function> {
    type Arguments = (LuaString, LuaString, Option<LuaString>, usize, Option<Table>);
    let (cache, steps) = (cache.clone(), steps.clone());
    raise::function(lua, move |lua, (subject, regex, options, at, table): Arguments| {
        let compiled = match cache.get((regex, options), &steps)? {
            Ok(compiled) => compiled,
            Err(failure) => return failed(lua, failure),
        };
        let subject = subject.as_bytes();
        match compiled.captures(&subject, at, &steps)? {
            Ok(None) => Ok(MultiValue::new()),
            Ok(Some(captures)) => {
                let (from, to) = span(&captures);
                let table = compiled.collect(lua, &captures, table)?;
                Ok((from, to, table, compiled.next(&subject, from, to)).into_lua_multi(lua)?)
            }
            Err(failure) => failed(lua, failure),
        }
    })
}

/// Where a group of the first match from an offset on begins and ends, counted from 1, and where the match ends.
/// Otherwise as [`capture`].
fn locate(lua: &Lua, cache: &Rc<Cache>, steps: &Steps) -> mlua::Result<Function> {
    type Arguments = (LuaString, LuaString, Option<LuaString>, usize, usize);
    let (cache, steps) = (cache.clone(), steps.clone());
    raise::function(lua, move |lua, (subject, regex, options, at, nth): Arguments| {
        let compiled = match cache.get((regex, options), &steps)? {
            Ok(compiled) => compiled,
            Err(failure) => return failed(lua, failure),
        };
        let subject = subject.as_bytes();
        let captures = match compiled.captures(&subject, at, &steps)? {
            Ok(Some(captures)) => captures,
            Ok(None) => return Ok(MultiValue::new()),
            Err(failure) => return failed(lua, failure),
        };
        if nth >= captures.len() {
            return failed(lua, "nth out of bound".to_owned());
        }
        let group = captures.get(nth).map(|group| (group.start() + 1, group.end()));
        Ok((span(&captures).1, group.map(|group| group.0), group.map(|group| group.1)).into_lua_multi(lua)?)
    })
}

/// `sub` and `gsub` with a template: the new subject and the number of matches, or `nil, nil` and a message.
fn substitute(lua: &Lua, cache: &Rc<Cache>, steps: &Steps) -> mlua::Result<Function> {
    type Arguments = (LuaString, LuaString, LuaString, Option<LuaString>, bool);
    let (cache, steps) = (cache.clone(), steps.clone());
    raise::function(lua, move |lua, (subject, regex, template, options, global): Arguments| {
        let compiled = match cache.get((regex, options), &steps)? {
            Ok(compiled) => compiled,
            Err(failure) => return Ok((None, None, Some(failure))),
        };
        let template = template.as_bytes();
        let Some(template) = Template::parse(&template) else {
            return Ok((None, None, Some("failed to compile the replacement template".to_owned())));
        };
        let outcome = compiled.substitute(&subject.as_bytes(), &template, global, &steps)?;
        Ok(match outcome {
            Ok((text, count)) => (Some(lua.create_string(text)?), Some(count), None),
            Err(failure) => (None, None, Some(failure)),
        })
    })
}

impl Compiled {
    /// The captures of the first match from `at` on.
    fn captures<'t>(
        &self,
        subject: &'t [u8],
        at: usize,
        steps: &Steps,
    ) -> Checked<Result<Option<Captures<'t, [u8]>>, Failure>> {
        if at > subject.len() {
            return Ok(Ok(None));
        }
        if !self.linear && subject.len() - at > MAX_BACKTRACKED {
            return Ok(Err(TOO_MUCH.to_owned()));
        }
        self.rehearse(subject, at, steps)?;
        let input = RegexInput::new(subject).from_pos(at).anchored(self.anchored);
        let begun = steps::thread_time();
        let outcome = self.regex.captures_input(input);
        steps.take_since(begun)?;
        // The only error of a match is that of its limit.
        Ok(outcome.map_err(|_| TOO_MUCH.to_owned()))
    }

    /// Searches a long subject in parts first, because the search of the whole is not interrupted: the call is ended where an
    /// expression takes long for each byte.
    fn rehearse(&self, subject: &[u8], at: usize, steps: &Steps) -> Checked<()> {
        if !self.heavy || subject.len() - at <= PART {
            return Ok(());
        }
        for part in subject[at..].chunks(PART) {
            let begun = steps::thread_time();
            let found = self.regex.captures_input(RegexInput::new(part).anchored(self.anchored));
            steps.take_since(begun)?;
            // A match that reaches the end of a part may go on in the next.
            if found.is_ok_and(|found| found.is_some_and(|found| span(&found).1 < part.len())) {
                break;
            }
        }
        Ok(())
    }

    /// Where the search goes on after a match: beyond the next character if it is empty.
    fn next(&self, subject: &[u8], from: usize, to: usize) -> usize {
        if to > from {
            return to;
        }
        let rest = subject.get(to + 1..).unwrap_or_default();
        let continued = rest.iter().take_while(|byte| self.unicode && **byte & 0xc0 == 0x80);
        to + 1 + continued.count()
    }

    /// Captures as a table, by number and by name. Those that took no part are `false`.
    fn collect(&self, lua: &Lua, captures: &Captures<'_, [u8]>, table: Option<Table>) -> mlua::Result<Table> {
        let table = table.map_or_else(|| lua.create_table(), Ok)?;
        for index in 0..captures.len() {
            table.raw_set(index, group(lua, captures, index)?)?;
        }
        for (name, index) in &self.names {
            table.raw_set(&**name, group(lua, captures, *index)?)?;
        }
        Ok(table)
    }

    fn substitute(
        &self,
        subject: &[u8],
        template: &Template<'_>,
        global: bool,
        steps: &Steps,
    ) -> Checked<Result<(Vec<u8>, usize), Failure>> {
        let (mut out, mut copied, mut at, mut count) = (Vec::with_capacity(subject.len()), 0, 0, 0);
        while at <= subject.len() && (global || count == 0) {
            let captures = match self.captures(subject, at, steps)? {
                Ok(Some(captures)) => captures,
                Ok(None) => break,
                Err(failure) => return Ok(Err(failure)),
            };
            let (from, to) = span(&captures);
            out.extend_from_slice(&subject[copied..from]);
            let before = out.len();
            template.expand(&mut out, &captures);
            steps.take_bytes(out.len() - before)?;
            count += 1;
            copied = to;
            at = self.next(subject, from, to);
        }
        out.extend_from_slice(&subject[copied..]);
        Ok(Ok((out, count)))
    }
}

/// Start and end of the whole match.
fn span(captures: &Captures<'_, [u8]>) -> (usize, usize) {
    captures.get(0).map_or((0, 0), |whole| (whole.start(), whole.end()))
}

fn group(lua: &Lua, captures: &Captures<'_, [u8]>, index: usize) -> mlua::Result<Value> {
    match captures.get(index) {
        Some(text) => Ok(Value::String(lua.create_string(text.as_bytes())?)),
        None => Ok(Value::Boolean(false)),
    }
}

fn failed(lua: &Lua, failure: Failure) -> Checked<MultiValue> {
    Ok(MultiValue::from_vec(vec![Value::Boolean(false), failure.into_lua(lua)?]))
}
