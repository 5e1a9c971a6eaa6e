//! The names in a file of Lua, and which of them the host lacks.
//!
//! Names are followed in the order of the text: what a file declares itself stands for something else from there on.

use super::needs::Missing;
use crate::tokens::{Token, Tokens, is_condition};
use crate::unavailable;
use crate::vm::{Vm, module};
use foldhash::{HashMap, HashSet};
use mlua::{Lua, Table, Value};
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use weir_plugin::schema::did_you_mean;

/// Tables whose members are those of a request, or of a node that runs.
const OPEN: [&str; 8] = [
    "kong.configuration",
    "kong.ctx.core",
    "kong.ctx.plugin",
    "kong.ctx.shared",
    "ngx.ctx",
    "ngx.header",
    "ngx.shared",
    "ngx.var",
];

/// What a name in a file stands for: members of a global, or of a module.
#[derive(Clone)]
struct Place {
    /// A global, or the name of a module.
    root: String,
    members: Vec<String>,
}

impl Place {
    fn of(root: &str) -> Self {
        Self { root: root.to_owned(), members: Vec::new() }
    }

    /// The kind of entity in `kong.db` that it is, or a member of.
    fn collection(&self) -> Option<&str> {
        match (self.root.as_str(), self.members.as_slice()) {
            ("kong", [db, collection, ..]) if db == "db" => Some(collection),
            _ => None,
        }
    }

    /// The shared dictionary that it is, or a member of.
    fn shared_dict(&self) -> Option<&str> {
        match (self.root.as_str(), self.members.as_slice()) {
            ("ngx", [shared, dict, ..]) if shared == "shared" => Some(dict),
            _ => None,
        }
    }

    /// Whether a plugin that is elsewhere may declare it, or settings of the node.
    fn may_be_declared(&self) -> bool {
        let is_free = |name: &str| unavailable::instead(&format!("kong.db.{name}")).is_none();
        self.collection().is_some_and(is_free) || self.shared_dict().is_some()
    }

    fn text(&self) -> String {
        [std::slice::from_ref(&self.root), &self.members].concat().join(".")
    }
}

/// What there is, in the host and in Lua itself.
pub(super) struct Names {
    pub(super) vm: Rc<Vm>,
    /// Lua as it comes, with what the host has taken away.
    plain: Lua,
    /// What is in `kong.db`.
    collections: HashSet<String>,
    /// What is in `ngx.shared`.
    dicts: HashSet<String>,
}

impl Names {
    pub(super) fn new(vm: Rc<Vm>, collections: HashSet<String>, dicts: HashSet<String>) -> Self {
        Self { vm, plain: Lua::new(), collections, dicts }
    }

    /// What a file names that is missing. `has_module` says whether `require` finds a module.
    pub(super) fn missing(
        &self,
        file: &Path,
        tokens: &Tokens<'_>,
        has_module: &dyn Fn(&str) -> bool,
    ) -> Vec<Missing> {
        let (own, tested) = (HashSet::default(), HashSet::default());
        let mut reading = Reading { names: self, tokens, known: self.globals(), own, tested };
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some((_, line)) = tokens.get(at) {
            let (what, next) = reading.step(at, has_module);
            found.extend(what.map(|what| Missing {
                is_warning: what.is_tested,
                ..Missing::new(file, *line, what.message)
            }));
            at = next;
        }
        found
    }

    /// Those whose members are known.
    fn globals(&self) -> HashMap<String, Place> {
        let globals = self.plain.globals();
        let of_lua = globals.pairs::<String, Value>().filter_map(Result::ok);
        let tables = of_lua.filter(|(name, value)| value.is_table() && name != "_G").map(|(name, _)| name);
        let all = tables.chain(["kong", "ngx", "debug"].map(str::to_owned));
        all.map(|name| (name.clone(), Place::of(&name))).collect()
    }

    /// Whether Lua has a function that the host has not.
    fn is_taken_away(&self, name: &str) -> bool {
        let is_in = |lua: &Lua| lua.globals().get::<Value>(name).is_ok_and(|value| !value.is_nil());
        is_in(&self.plain) && !is_in(&self.vm.lua)
    }

    /// What is wrong with a place: it is missing, or there and of no use.
    fn problem(&self, place: &Place) -> Option<String> {
        let name = place.text();
        if place.members.is_empty() {
            return None;
        }
        if let Some(collection) = place.collection() {
            return (!self.collections.contains(collection)).then(|| self.missing_collection(collection));
        }
        if let Some(dict) = place.shared_dict() {
            return (!self.dicts.contains(dict)).then(|| self.missing_dict(dict));
        }
        match unavailable::refused(&name) {
            Some(why) => Some(format!("{name} always fails here: {why}")),
            None => (!self.has(place)).then(|| missing(&name, "") + &self.hint(place)),
        }
    }

    fn missing_collection(&self, collection: &str) -> String {
        let name = format!("kong.db.{collection}");
        match unavailable::instead(&name) {
            Some(_) => missing(&name, ""),
            None => {
                missing(&name, "") + &did_you_mean(collection, self.collections.iter().map(String::as_str))
            }
        }
    }

    fn missing_dict(&self, dict: &str) -> String {
        let hint = match did_you_mean(dict, self.dicts.iter().map(String::as_str)) {
            none if none.is_empty() => format!(": name it in the setting lua_shared_dict, as `{dict} 1m`"),
            hint => hint,
        };
        missing(&format!("ngx.shared.{dict}"), "") + &hint
    }

    /// The nearest name that there is, as a question, where nothing else is said of what is missing.
    fn hint(&self, place: &Place) -> String {
        if unavailable::instead(&place.text()).is_some() {
            return String::new();
        }
        let mut holder = match place.root.as_str() {
            name @ ("kong" | "ngx" | "debug") => self.vm.lua.globals().get(name).ok(),
            name => module(&self.vm.lua, name).ok().flatten(),
        };
        for name in &place.members {
            let Some(Value::Table(table)) = holder else { break };
            match table.get::<Value>(name.as_str()) {
                Ok(Value::Nil) => return did_you_mean(name, member_names(&table).iter().map(String::as_str)),
                member => holder = member.ok(),
            }
        }
        String::new()
    }

    /// Whether the VM has the member that a place names. What only a request has is taken to be there, and so is what a plugin
    /// may have added to a library of Lua.
    fn has(&self, place: &Place) -> bool {
        let globals = self.vm.lua.globals();
        let library = self.plain.globals().get::<Value>(place.root.as_str()).ok();
        match (place.root.as_str(), library.filter(Value::is_table)) {
            ("kong" | "ngx" | "debug", _) => holds(globals.get(place.root.as_str()).ok(), place),
            (name, Some(Value::Table(library))) => {
                !holds_exactly(&library, place) || holds(globals.get(name).ok(), place)
            }
            (name, _) => holds(module(&self.vm.lua, name).ok().flatten(), place),
        }
    }
}

/// The names in a table, and in the one that it shows.
fn member_names(table: &Table) -> Vec<String> {
    let shown = table.metatable().and_then(|meta| meta.get::<Table>("__index").ok());
    let tables: Vec<Table> = [Some(table.clone()), shown].into_iter().flatten().collect();
    let members = tables.iter().flat_map(Table::pairs::<String, Value>);
    members.filter_map(|pair| Some(pair.ok()?.0)).collect()
}

/// The message for what is missing.
pub(super) fn missing(name: &str, kind: &str) -> String {
    let instead = unavailable::instead(name).map(|instead| format!(": {instead}")).unwrap_or_default();
    match kind {
        "" => format!("there is no {name} here{instead}"),
        kind => format!("there is no {kind} '{name}' here{instead}"),
    }
}

fn holds(root: Option<Value>, place: &Place) -> bool {
    let Some(mut value) = root else { return true };
    for (name, at) in place.members.iter().zip(0..) {
        let holder = Place { root: place.root.clone(), members: place.members[..at].to_vec() };
        if OPEN.contains(&holder.text().as_str()) {
            return true;
        }
        let Value::Table(table) = &value else { return true };
        match table.get::<Value>(name.as_str()) {
            Ok(Value::Nil) => return false,
            Ok(member) => value = member,
            Err(_) => return true,
        }
    }
    true
}

fn holds_exactly(library: &Table, place: &Place) -> bool {
    let member = place.members.first();
    member.is_some_and(|name| library.get::<Value>(name.as_str()).is_ok_and(|value| !value.is_nil()))
}

/// What is said of a name.
struct Problem {
    message: String,
    /// The code looks whether it is there.
    /// Or it may be there all the same.
    is_tested: bool,
}

/// A file while it is read.
struct Reading<'r, 't> {
    names: &'r Names,
    tokens: &'r Tokens<'t>,
    known: HashMap<String, Place>,
    /// Names that the file declares.
    own: HashSet<&'t str>,
    /// Names that conditions have asked for.
    tested: HashSet<String>,
}

impl<'t> Reading<'_, 't> {
    /// What is missing at a token, and the next to look at.
    fn step(&mut self, at: usize, has_module: &dyn Fn(&str) -> bool) -> (Option<Problem>, usize) {
        let Token::Name(name) = self.tokens[at].0 else { return (None, at + 1) };
        let after = |sign| matches!(self.tokens.get(at + 1), Some((Token::Sign(it), _)) if *it == sign);
        let is_member = at > 0 && matches!(self.tokens[at - 1].0, Token::Sign('.' | ':'));
        if is_member && !is_concatenated(self.tokens, at) {
            return (None, at + 1);
        }
        match name {
            "local" | "function" | "for" => {
                self.declare(at);
                (None, at + 1)
            }
            "require" => match required(self.tokens, at + 1) {
                Some((module, next)) => {
                    let problem = (!has_module(&module)).then(|| missing(&module, "module"));
                    let (place, next) = with_members(&Place::of(&module), self.tokens, next);
                    let problem = problem.or_else(|| self.names.problem(&place));
                    let problem = problem.map(|message| Problem { message, is_tested: false });
                    self.alias(at, next, place);
                    (problem, next)
                }
                None => (None, at + 1),
            },
            name if self.known.contains_key(name) && !self.is_assigned(at + 1) => {
                let (place, next) = with_members(&self.known[name], self.tokens, at + 1);
                let message = self.names.problem(&place).filter(|_| !self.is_assigned(next));
                let problem = message.map(|message| {
                    let said = self.tested(message, &place.text(), at..next);
                    Problem { is_tested: said.is_tested || place.may_be_declared(), ..said }
                });
                self.alias(at, next, place);
                (problem, next)
            }
            name => {
                let is_read = !self.own.contains(name) && !after('=') && self.names.is_taken_away(name);
                (is_read.then(|| self.tested(missing(name, ""), name, at..at + 1)), at + 1)
            }
        }
    }

    /// What is said of a name that stands at these tokens. One that a condition has asked for may be missing.
    fn tested(&mut self, message: String, name: &str, at: Range<usize>) -> Problem {
        if is_condition(self.tokens, at) {
            self.tested.insert(name.to_owned());
        }
        let is_of = |tested: &String| {
            name.strip_prefix(tested.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        Problem { message, is_tested: self.tested.iter().any(is_of) }
    }

    /// Whether the sign is the first of `==`.
    fn compares(&self, at: usize) -> bool {
        matches!(self.tokens.get(at + 1), Some((Token::Sign('='), _)))
    }

    /// Whether what ends before this token gets a value here.
    fn is_assigned(&self, at: usize) -> bool {
        matches!(self.tokens.get(at), Some((Token::Sign('='), _))) && !self.compares(at)
    }

    fn alias(&mut self, from: usize, to: usize, place: Place) {
        if let Some(alias) = alias(self.tokens, from, to) {
            self.own.remove(alias);
            self.known.insert(alias.to_owned(), place);
        }
    }

    /// The names that a declaration gives to something else from here on.
    fn declare(&mut self, at: usize) {
        let keyword = self.tokens[at].0;
        let mut at = at + 1;
        if keyword == Token::Name("function") {
            while matches!(self.tokens.get(at), Some((Token::Name(_) | Token::Sign('.' | ':'), _))) {
                at += 1;
            }
            at += 1;
        }
        let mut names = Vec::new();
        while let Some((Token::Name(name), _)) = self.tokens.get(at) {
            if *name == "function" {
                // `local function name` names one function.
                names.extend(self.tokens.get(at + 1).and_then(|(token, _)| token.name()));
                break;
            }
            names.push(*name);
            match self.tokens.get(at + 1) {
                Some((Token::Sign(','), _)) => at += 2,
                _ => break,
            }
        }
        for name in names.into_iter().filter(|name| !matches!(*name, "kong" | "ngx")) {
            if !(keyword == Token::Name("local") && self.is_named_on_the_right(at + 1, name)) {
                self.known.remove(name);
                self.own.insert(name);
            }
        }
    }

    /// Whether a name is among those behind the sign `=`, as in `local table, string = table, string`.
    fn is_named_on_the_right(&self, at: usize, name: &str) -> bool {
        let Some((Token::Sign('='), line)) = self.tokens.get(at) else { return false };
        let is_of_names = |(token, of): &&(Token<'_>, usize)| {
            of == line && matches!(token, Token::Name(_) | Token::Sign(',' | '.'))
        };
        let mut right = self.tokens[at + 1..].iter().take_while(is_of_names);
        right.any(|(token, _)| *token == Token::Name(name))
    }
}

/// Whether the sign before a name is the end of `..`.
fn is_concatenated(tokens: &Tokens<'_>, at: usize) -> bool {
    at > 1 && tokens[at - 1].0 == Token::Sign('.') && tokens[at - 2].0 == Token::Sign('.')
}

/// The name of a required module, and where it ends. A name that goes on, as in `require("x." .. y)`, is not known.
pub(super) fn required(tokens: &Tokens<'_>, at: usize) -> Option<(String, usize)> {
    let after = match tokens.get(at)?.0 {
        Token::Sign('(' | ',') => at + 1,
        _ => at,
    };
    let Token::Text(name) = tokens.get(after)?.0 else { return None };
    let next = |sign: char| matches!(tokens.get(after + 1), Some((Token::Sign(it), _)) if *it == sign);
    if after > at && next('.') {
        return None;
    }
    let closed = next(')') && after > at;
    Some((name.to_owned(), after + 1 + usize::from(closed)))
}

/// The member that what follows names, as `.name` or `["name"]`, and how many words that takes.
fn member<'t>(tokens: &Tokens<'t>) -> Option<(&'t str, usize)> {
    match *tokens {
        [(Token::Sign('.'), _), (Token::Name(name), _), ..] => Some((name, 2)),
        [(Token::Sign('['), _), (Token::Text(name), _), (Token::Sign(']'), _), ..] => {
            (!name.contains('\\')).then_some((name, 3))
        }
        _ => None,
    }
}

/// A place with the members that follow it, and where they end.
fn with_members(place: &Place, tokens: &Tokens<'_>, mut at: usize) -> (Place, usize) {
    let mut place = place.clone();
    while let Some((name, length)) = member(&tokens[at.min(tokens.len())..]) {
        place.members.push(name.to_owned());
        at += length;
    }
    // A method that is called.
    if let [(Token::Sign(':'), _), (Token::Name(name), _), (Token::Sign('(' | '{') | Token::Text(_), _), ..] =
        tokens[at.min(tokens.len())..]
    {
        place.members.push(name.to_owned());
        at += 2;
    }
    (place, at)
}

/// The name that `local name = …` gives to what stands between these tokens.
fn alias<'t>(tokens: &Tokens<'t>, from: usize, to: usize) -> Option<&'t str> {
    let [.., (Token::Name("local"), _), (Token::Name(name), _), (Token::Sign('='), _)] = tokens[..from]
    else {
        return None;
    };
    let goes_on = matches!(tokens.get(to), Some((Token::Sign('(' | '[' | ':' | '.') | Token::Text(_), _)));
    (!goes_on).then_some(name)
}
