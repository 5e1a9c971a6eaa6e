//! What there is of all names that code of Kong's plugins may use, and in which phases.

use super::waiting::on_worker;
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

/// What there is of `kong` and `ngx`.
fn present() -> BTreeSet<String> {
    let (there, _) = include_str!("names.txt").split_once("\nmissing\n").unwrap();
    let names = names(there).filter(|(place, _)| !matches!(*place, "_G." | "require."));
    names.map(|(place, name)| expression(place, name)).collect()
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

/// The files of cases, and what begins the paths that a variable shortens there.
const CASES: [(&str, &str, &str); 3] = [
    (include_str!("pdk.cases"), "", ""),
    (include_str!("shared.cases"), "d.", "ngx.shared.own."),
    (include_str!("cache.cases"), "c.", "kong.cache."),
];

/// Where functions are called that no case can call, because they wait or are not in the sandbox; and those that need no request,
/// whose cases are among those of modules.
const ELSEWHERE: [(&str, &str); 7] = [
    ("kong.cluster_events.", include_str!("cluster.rs")),
    ("kong.worker_events.", include_str!("cache.rs")),
    ("ngx.sleep", include_str!("waiting.rs")),
    ("ngx.socket.", include_str!("sockets.rs")),
    ("ngx.thread.", include_str!("threads.rs")),
    ("ngx.timer.", include_str!("timers.rs")),
    ("ngx.", include_str!("../../tests/cases/ngx.txt")),
];

/// Which of these names are in a text. Of a path such as `kong.log.err`, the longest that is one of them.
fn named<'n>(text: &str, known: &'n BTreeSet<String>, (short, long): (&str, &str)) -> BTreeSet<&'n str> {
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':');
    let longest = |path: &str| {
        let path = path.replace(':', ".");
        let path = path.strip_prefix(short).map_or(path.clone(), |rest| format!("{long}{rest}"));
        let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
        ends.filter_map(|end| known.get(&path[..end])).next_back().map(String::as_str)
    };
    text.split(|c| !is_of_path(c)).filter_map(longest).collect()
}

#[test]
fn every_name_has_a_case() {
    let known = present();
    let cases = CASES.iter().flat_map(|(text, short, long)| named(text, &known, (short, long)));
    let elsewhere = ELSEWHERE.iter().flat_map(|(start, text)| {
        named(text, &known, ("", "")).into_iter().filter(move |name| name.starts_with(start))
    });
    let called: BTreeSet<_> = cases.chain(elsewhere).collect();
    let missing: Vec<_> = known.iter().filter(|name| !called.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "names without a case in pdk.cases or what ELSEWHERE has: {missing:?}");
}

#[test]
fn every_function_of_a_request_has_its_phases() {
    let known = present();
    let called = named(include_str!("phases.txt"), &known, ("", ""));
    let is_of_request =
        |name: &&String| ["kong.", "ngx.req.", "ngx.resp."].iter().any(|at| name.starts_with(at));
    let missing: Vec<_> =
        known.iter().filter(is_of_request).filter(|name| !called.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "names without a line in phases.txt: {missing:?}");
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
    let faults = on_worker(async { faults_of_phases() });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn faults_of_phases() -> Vec<String> {
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
    faults
}

fn is_refused(gateway: &Gateway, vm: &Vm, phase: Phase, call: &str) -> bool {
    let code = format!(
        "local ok, why = pcall(function() {call} end) why = tostring(why) \
         return not ok and (why:find('function cannot be called in ' .. ngx.get_phase() .. ' phase (only in: ', 1, true) \
         or why:find('API disabled in the context of ', 1, true)) ~= nil"
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
