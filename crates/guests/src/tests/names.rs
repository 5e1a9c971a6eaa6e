//! What there is of all names that code of Kong's plugins may use, and in which phases.

use super::{gateway, settings, value};
use crate::host::Origin;
use crate::node::Node;
use crate::phase::Phase;
use crate::vm::Vm;
use crate::{LuaSettings, UntrustedLua};
use std::collections::BTreeSet;
use std::rc::Rc;
use weir_plugin::Source;
use weir_plugin::testing::Gateway;

/// Tables and names in them.
fn names(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.filter_map(|line| line.split_once(' '));
    lines.flat_map(|(place, names)| names.split_whitespace().map(move |name| (place, name)))
}

/// All that `kong` and `ngx` have, with the tables that hold it.
pub(super) fn members() -> BTreeSet<String> {
    let names = names(include_str!("names.txt")).filter(|(place, _)| !matches!(*place, "_G." | "require."));
    let paths = names.map(|(place, name)| expression(place, name));
    let parts = paths.flat_map(|path| {
        let ends = path.match_indices('.').skip(1).map(|(at, _)| at).chain([path.len()]);
        ends.map(|end| path[..end].to_owned()).collect::<Vec<_>>()
    });
    parts.collect()
}

/// An expression that is nil, or raises, if there is no such name.
fn expression(place: &str, name: &str) -> String {
    match place {
        "require." => format!("require('{name}')"),
        "_G." => name.to_owned(),
        place => format!("{place}{name}"),
    }
}

#[test]
fn every_name_is_there_or_known_to_be_missing() {
    let (there, missing) = include_str!("names.txt").split_once("\nmissing\n").unwrap();
    let mut code = "local wrong = {} local function check(name, wanted, get) local ok, it = pcall(get) \
                    if (ok and it ~= nil) ~= wanted then wrong[#wrong + 1] = name end end "
        .to_owned();
    for (text, wanted) in [(there, true), (missing, false)] {
        for (place, name) in names(text) {
            let expression = expression(place, name);
            code += &format!("check([[{expression}]], {wanted}, loadstring([[return {expression}]])) ");
        }
    }
    let settings = LuaSettings {
        shared_dicts: vec![("own".to_owned(), 65_536)],
        timeout: std::time::Duration::from_secs(60),
        ..settings(UntrustedLua::On)
    };
    assert_eq!(value(settings, &(code + "return table.concat(wrong, ' ')")), "");
}

/// The phases by their letters.
const PHASES: [(char, Phase); 9] = [
    ('I', Phase::InitWorker),
    ('C', Phase::Certificate),
    ('R', Phase::Rewrite),
    ('A', Phase::Access),
    ('P', Phase::Response),
    ('H', Phase::HeaderFilter),
    ('B', Phase::BodyFilter),
    ('L', Phase::Log),
    ('T', Phase::Timer),
];

/// A line is the letters of the phases that a call is allowed in, and the call.
#[test]
fn functions_are_refused_in_all_other_phases() {
    let gateway =
        gateway(LuaSettings { timeout: std::time::Duration::from_secs(5), ..settings(UntrustedLua::On) });
    let vm = Vm::of_thread(&gateway.retained.get(), &Node::of(&gateway.retained)).unwrap();
    let mut faults = Vec::new();
    for line in include_str!("phases.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (letters, call) = line.split_once(' ').unwrap();
        for (letter, phase) in PHASES {
            let refused = is_refused(&gateway, &vm, phase, call);
            if refused == letters.contains(letter) {
                let what = if refused { "refused" } else { "allowed" };
                faults.push(format!("{}: {call} is {what}", phase.name()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn is_refused(gateway: &Gateway, vm: &Vm, phase: Phase, call: &str) -> bool {
    let code = format!(
        "local ok, why = pcall(function() {call} end) return not ok and tostring(why):find('function cannot be called in ' \
         .. ngx.get_phase() .. ' phase (only in: ', 1, true) ~= nil"
    );
    let function = vm.sandbox.compile(&vm.lua, &code, "=probe").unwrap();
    let mut exchange = gateway.exchange("GET /");
    exchange.source = Source::Service;
    exchange.response.status = 200;
    let origin = Rc::new(Origin { plugin: "probe".into(), id: "".into() });
    let ran = vm.host.lend(&mut exchange, (phase, &origin), || function.call::<bool>(()));
    vm.host.answer.take();
    // A call that ends the request has not been refused.
    ran.unwrap_or(false)
}
