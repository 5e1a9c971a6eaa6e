//! `ngx.re`: regular expressions in the syntax of PCRE.
//!
//! An expression without look-around and back-references is matched in linear time; others stop at a limit of
//! backtracking, which reads as PCRE's error -8.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use fancy_regex::{BytesMode, Captures, Regex, RegexBuilder, RegexInput};
use mlua::{Function, IntoLua, IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};

use super::replace::Template;
use crate::raise::{self, Checked};
use crate::steps::Steps;

/// How many compiled expressions a VM keeps; beyond that it begins anew.
const MAX_COMPILED: usize = 1024;
/// What a compiled expression may take, in bytes.
const MAX_SIZE: usize = 1 << 20;
/// What a compilation costs: in any case, and for each byte of the source.
const STEPS_TO_COMPILE: usize = 10_000;
const STEPS_PER_BYTE: usize = 500;
/// How often an expression may backtrack.
const BACKTRACK_LIMIT: usize = 1_000_000;

/// A compiled expression.
pub(super) struct Compiled {
    regex: Regex,
    /// Named groups.
    names: Vec<(String, usize)>,
    anchored: bool,
}

/// Why an expression gives no result.
type Failure = String;

/// Compiled expressions.
#[derive(Default)]
struct Cache(RefCell<HashMap<Key, Rc<Compiled>>>);

/// The source and the options of an expression.
type Key = (LuaString, Option<LuaString>);

/// The functions of `ngx.re`.
pub fn table(lua: &Lua) -> mlua::Result<Table> {
    let cache = Rc::new(Cache::default());
    let steps = Steps::of(lua);
    let primitives =
        (capture(lua, &cache, &steps)?, locate(lua, &cache, &steps)?, substitute(lua, &cache, &steps)?);
    lua.load(include_str!("regex.lua")).set_name("=[ngx.re]").call(primitives)
}

/// The first match from an offset on: `start, end, captures`, offsets from 0. `nil` if there is none; `false` and a
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
                Ok((from, to, table).into_lua_multi(lua)?)
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

impl Cache {
    /// The compiled expression. An unknown option is raised.
    fn get(&self, key: Key, steps: &Steps) -> Checked<Result<Rc<Compiled>, Failure>> {
        if let Some(compiled) = self.0.borrow().get(&key) {
            return Ok(Ok(compiled.clone()));
        }
        let options = key.1.as_ref().map(|options| options.as_bytes().to_vec()).unwrap_or_default();
        steps.take_many(STEPS_TO_COMPILE + key.0.as_bytes().len() * STEPS_PER_BYTE)?;
        let compiled = match compile(&key.0.as_bytes(), &options)? {
            Ok(compiled) => Rc::new(compiled),
            Err(failure) => return Ok(Err(failure)),
        };
        let mut cache = self.0.borrow_mut();
        if cache.len() >= MAX_COMPILED {
            cache.clear();
        }
        cache.insert(key, compiled.clone());
        Ok(Ok(compiled))
    }
}

fn compile(regex: &[u8], options: &[u8]) -> Checked<Result<Compiled, Failure>> {
    let unicode = options.iter().any(|option| option.eq_ignore_ascii_case(&b'u'));
    let source = if unicode { String::from_utf8_lossy(regex).into_owned() } else { bytewise(regex) };
    let mut builder = RegexBuilder::new(&source);
    builder.bytes_mode(if unicode { BytesMode::UnicodeBytes } else { BytesMode::Ascii });
    builder.backtrack_limit(BACKTRACK_LIMIT).delegate_size_limit(MAX_SIZE).delegate_dfa_size_limit(MAX_SIZE);
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
    let regex = match builder.build() {
        Ok(regex) => regex,
        Err(error) => return Ok(Err(format!("pcre_compile() failed: {error} in \"{source}\""))),
    };
    let names = regex.capture_names().enumerate();
    let names = names.filter_map(|(index, name)| Some((name?.to_owned(), index))).collect();
    Ok(Ok(Compiled { regex, names, anchored }))
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
        let input = RegexInput::new(subject).from_pos(at).anchored(self.anchored);
        let outcome = self.regex.captures_input(input);
        let end = outcome.as_ref().ok().and_then(|captures| Some(span(captures.as_ref()?).1));
        steps.take_many(end.unwrap_or(subject.len()).saturating_sub(at))?;
        // The only error of a match is that of its limit.
        Ok(outcome.map_err(|_| "pcre_exec() failed: -8".to_owned()))
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
            at = if to > from { to } else { to + 1 };
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
