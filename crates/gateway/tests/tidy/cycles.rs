//! The modules of a crate's root import each other in no cycle, so that each can be read after those that it uses.
use crate::{none, texts};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// The modules that each module of a crate's root imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Files that are no module of their own: roots, which import everything, and tests.
const LEFT_OUT: &[&str] = &["lib.rs", "main.rs", "tests.rs", "testing.rs"];

/// The crate of a source file, and the module of the crate's root that it is, or is part of.
fn module(path: &Path) -> Option<(String, String)> {
    let mut parts = path.iter().map(|part| part.to_string_lossy().into_owned());
    let (crates, name, src) = (parts.next()?, parts.next()?, parts.next()?);
    let rest: Vec<String> = parts.collect();
    let is_left_out = rest.iter().any(|part| part == "tests" || LEFT_OUT.contains(&part.as_str()));
    if crates != "crates" || src != "src" || is_left_out {
        return None;
    }
    Some((name, rest.first()?.trim_end_matches(".rs").to_owned()))
}

/// Where tests begin, comments, and what a source file imports of its crate's root: one name, a group of names, a name of it.
static SYNTAX: LazyLock<[Regex; 5]> = LazyLock::new(|| {
    [
        r"#\[cfg\(test\)\]\s*mod tests",
        r"//.*",
        r"\bcrate::(\w+)",
        r"\bcrate::\{([^;]*)\};",
        r"(?:^|[,{])\s*(\w+)",
    ]
    .map(|regex| Regex::new(regex).unwrap())
});

/// What a source file imports of its crate's root, its tests left out.
fn imports(text: &str) -> BTreeSet<String> {
    let [tests, comment, single, group, member] = &*SYNTAX;
    let text = comment.replace_all(tests.split(text).next().unwrap_or_default(), "").into_owned();
    let groups = group.captures_iter(&text).flat_map(|group| {
        let members = member.captures_iter(group.get(1).unwrap().as_str());
        members.map(|member| member[1].to_owned()).collect::<Vec<_>>()
    });
    single.captures_iter(&text).map(|found| found[1].to_owned()).chain(groups).collect()
}

fn by_crate(sources: &[(PathBuf, String)]) -> BTreeMap<String, Imports> {
    let mut crates: BTreeMap<String, Imports> = BTreeMap::new();
    for (path, text) in sources {
        if let Some((name, module)) = module(path) {
            crates.entry(name).or_default().entry(module).or_default().extend(imports(text));
        }
    }
    for modules in crates.values_mut() {
        let names: BTreeSet<String> = modules.keys().cloned().collect();
        modules.iter_mut().for_each(|(own, used)| used.retain(|used| used != own && names.contains(used)));
    }
    crates
}

/// The modules that cannot be put into an order: each imports another of them.
fn in_cycles(mut modules: Imports) -> Vec<String> {
    // What imports nothing that is left is in no cycle, and neither is what nothing that is left imports.
    loop {
        let used: BTreeSet<String> = modules.values().flatten().cloned().collect();
        let left: BTreeSet<String> = modules
            .iter()
            .filter(|(name, uses)| !uses.is_empty() && used.contains(*name))
            .map(|(name, _)| name.clone())
            .collect();
        if left.len() == modules.len() {
            return left.into_iter().collect();
        }
        modules.retain(|name, _| left.contains(name));
        modules.values_mut().for_each(|uses| uses.retain(|used| left.contains(used)));
    }
}

#[test]
fn no_modules_import_each_other_in_a_cycle() {
    let crates = by_crate(&texts(&["rs"]));
    assert!(crates["proxy"]["observe"].contains("exchange"), "imports were not found");
    let cycles = crates.into_iter().map(|(name, modules)| (name, in_cycles(modules)));
    let found = cycles.filter(|(_, cycle)| !cycle.is_empty()).map(|(name, cycle)| {
        let cycle = cycle.join(", ");
        format!("crates/{name}/src: a cycle of imports goes through {cycle}: move what they share to one of them, or below")
    });
    none(&found.collect::<Vec<_>>());
}

#[test]
fn a_cycle_of_imports_is_found() {
    let source = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
    let mut sources = vec![
        source(
            "crates/a/src/first.rs",
            "use crate::second::B;\n#[cfg(test)]\nmod tests { use crate::last; }",
        ),
        source(
            "crates/a/src/second/part.rs",
            "use crate::{\n    last::{C, D},\n    own,\n};\n// crate::first",
        ),
        source("crates/a/src/last.rs", "use crate::last::C;"),
        source("crates/b/src/last.rs", "use crate::first;"),
    ];
    let of = |sources: &[(PathBuf, String)]| in_cycles(by_crate(sources).remove("a").unwrap());
    assert_eq!(of(&sources), [""; 0]);
    sources.push(source("crates/a/src/last/more.rs", "fn f() { crate::first::g() }"));
    assert_eq!(of(&sources), ["first", "last", "second"]);
}
