//! What is shipped is whole: every scenario and target can be read, and what they say of each other is true.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::catalogue_bench::{Bench, cases, program, root, target, weir};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use weirlab::scenario::{self, CasePlan, Document, Scenario, Scheme, Suite};
use weirlab::target;

fn scenarios() -> Vec<Scenario> {
    scenario::find(&[], &root()).unwrap()
}

/// Every case, over the scheme that its scenario prefers.
fn all_cases() -> &'static [CasePlan] {
    static ALL: OnceLock<Vec<CasePlan>> = OnceLock::new();
    ALL.get_or_init(|| scenarios().iter().flat_map(|scenario| scenario.cases(None).unwrap()).collect())
}

/// The features that the documentation lists, in the first column of its table.
fn documented_features() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("docs/laboratory/targets.md")).unwrap();
    let table = text.split("## Features").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    rows.map(|(feature, _)| feature.to_owned()).collect()
}

#[test]
fn every_scenario_has_its_files_and_becomes_cases() {
    let known = documented_features();
    let all = scenarios();
    assert!(all.len() >= 39, "{}", all.len());
    for scenario in all {
        for file in ["scenario.toml", "kong.yml", "WHY.md"] {
            assert!(scenario.folder.join(file).is_file(), "{} lacks {file}", scenario.name);
        }
    }
    let mut names = BTreeSet::new();
    for case in all_cases() {
        assert!(case.needs.is_subset(&known), "{}: {:?}", case.case.name, case.needs);
        assert!(names.insert(&case.case.name), "two cases are called {}", case.case.name);
    }
}

#[test]
fn targets_speak_of_known_features_alone() {
    let known = documented_features();
    for target in target::find(&[], &root()).unwrap() {
        let said: BTreeSet<String> = target.lacking().keys().cloned().collect();
        assert!(
            target.features.is_subset(&known),
            "{}: {:?}",
            target.name,
            target.features.difference(&known)
        );
        assert!(said.is_subset(&known), "{}: {:?}", target.name, said.difference(&known));
        assert!(said.is_disjoint(&target.features), "{} both has and lacks something", target.name);
    }
}

#[test]
fn every_published_row_is_a_scenario_and_the_other_way_round() {
    let text = std::fs::read_to_string(root().join("scenarios/kong/published.csv")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let published: BTreeSet<String> = rows.map(|row| row.split(',').nth(1).unwrap().to_owned()).collect();
    let ours =
        scenarios().into_iter().filter_map(|scenario| scenario.cases(None).unwrap().remove(0).case.published);
    assert_eq!(ours.collect::<BTreeSet<_>>(), published);
}

#[test]
fn the_suite_of_make_bench_runs_what_there_is() {
    let suite = Suite::find("bench", &[], &root()).unwrap();
    for entry in &suite.entries {
        let scenarios = scenario::find(std::slice::from_ref(&entry.scenario), &root()).unwrap();
        let targets = target::find(&entry.targets, &root()).unwrap();
        for case in scenarios.iter().flat_map(|scenario| scenario.cases(entry.scheme).unwrap()) {
            for target in &targets {
                assert_eq!(target.lacks(&case.needs), None, "{} {}", target.name, case.case.name);
            }
        }
    }
    // Missing programs are listed, rather than left out.
    for entry in &Suite::find("protocols", &[], &root()).unwrap().entries {
        for scenario in scenario::find(std::slice::from_ref(&entry.scenario), &root()).unwrap() {
            let case = scenario.cases(entry.scheme).unwrap().remove(0);
            for target in target::find(&entry.targets, &root()).unwrap() {
                let mut missing = case.needs.difference(&target.features);
                let unexplained = missing.find(|feature| !target.lacking().contains_key(*feature));
                assert_eq!(unexplained, None, "{} {}", target.name, case.case.name);
            }
        }
    }
    let error = Suite::find("benhc", &[], &root()).unwrap_err().to_string();
    assert!(error.ends_with("the nearest: bench"), "{error}");
}

/// A case for each declarative file that is shipped. Those of hundreds of services or routes differ from others in size
/// alone and take a debug build long.
fn configurations() -> &'static [(&'static CasePlan, Document)] {
    static ALL: OnceLock<Vec<(&CasePlan, Document)>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut seen = BTreeSet::new();
        let is_small =
            |case: &&CasePlan| case.config.variables.values().all(|value| value.as_u64() < Some(200));
        let small = all_cases().iter().filter(is_small);
        let rendered =
            small.map(|case| (case, Bench::without_upstream(case.upstream.listeners).document(case)));
        rendered.filter(|(_, document)| seen.insert(document.text.replace("/s1-r1", "/route"))).collect()
    })
}

#[test]
fn weir_accepts_every_declarative_file() {
    let folder = tempfile::tempdir().unwrap();
    for (case, document) in configurations() {
        let file = folder.path().join("kong.yml");
        std::fs::write(&file, &document.text).unwrap();
        let checked = Command::new(weir()).arg("check").arg(&file).output().unwrap();
        assert!(checked.status.success(), "{}: {}", case.case.name, String::from_utf8_lossy(&checked.stderr));
    }
}

/// Asks a rival whether it takes the configuration of each case that it claims to stand.
fn accepts_what_it_claims(name: &str, arguments: &[&str]) {
    let target = target(name);
    let Some(binary) = program(&target) else { return };
    let claimed: Vec<_> =
        configurations().iter().filter(|(case, _)| target.lacks(&case.needs).is_none()).collect();
    assert!(claimed.len() > 8, "{name} claims too little: {}", claimed.len());
    for (case, document) in claimed {
        let bench = Bench::without_upstream(case.upstream.listeners);
        let launch = bench.prepare(&target, &binary, case, document);
        let mut check = Command::new(&binary);
        let output =
            check.args(arguments).current_dir(&launch.folder).envs(&launch.environment).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name} {}: {said}", case.case.name);
        assert!(!said.to_lowercase().contains("warn"), "{name} {}: {said}", case.case.name);
    }
}

#[test]
fn nginx_accepts_what_it_claims() {
    accepts_what_it_claims("nginx", &["-t", "-p", ".", "-c", "nginx.conf", "-e", "error.log"]);
}

#[test]
fn haproxy_accepts_what_it_claims() {
    accepts_what_it_claims("haproxy", &["-c", "-f", "haproxy.cfg"]);
}

#[test]
fn envoy_accepts_what_it_claims() {
    accepts_what_it_claims("envoy", &["--mode", "validate", "--log-level", "warn", "-c", "envoy.yaml"]);
}

#[test]
fn caddy_accepts_what_it_claims() {
    accepts_what_it_claims("caddy", &["validate", "--config", "caddy.json"]);
}

fn failure(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    scenario::find(&names, &root()).unwrap_err().to_string()
}

fn found(names: &[&str]) -> Vec<String> {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    scenario::find(&names, &root()).unwrap().into_iter().map(|scenario| scenario.name).collect()
}

#[test]
fn names_prefixes_stars_and_paths_find_scenarios() {
    assert_eq!(found(&["kong/plain-1"]), ["kong/plain-1"]);
    assert_eq!(found(&["scenarios/kong/plain-1/"]), ["kong/plain-1"]);
    assert_eq!(found(&[root().join("scenarios/kong/plain-1").to_str().unwrap()]), ["kong/plain-1"]);
    assert_eq!(found(&["kong/plain-*", "kong/plain-1"]), ["kong/plain-1", "kong/plain-100"]);
    assert_eq!(found(&["kong"]).len(), 8);
    assert_eq!(found(&["graviton"]), found(&["graviton/*"]));
}

#[test]
fn an_unknown_name_is_answered_with_the_nearest() {
    let error = failure(&["kong/plian-1"]);
    assert!(
        error.starts_with("there is no scenario kong/plian-1 in ") && error.contains("kong/plain-1"),
        "{error}"
    );
}

/// Writes a scenario whose `scenario.toml` ends with the given lines, and has it expanded.
fn written(lines: &str, yml: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let toml = format!(
        "title = 't'\nsource = 's'\n[load]\nconnections = 1\nthreads = 1\n[[load.request]]\npath = '/'\n{lines}"
    );
    std::fs::write(folder.path().join("scenario.toml"), toml).unwrap();
    std::fs::write(folder.path().join("kong.yml"), yml).unwrap();
    let name = folder.path().to_str().unwrap().to_owned();
    let scenarios = scenario::find(&[name], &root()).map_err(|error| error.to_string())?;
    let cases = scenarios[0].cases(None).map_err(|error| error.to_string())?;
    Ok(format!(
        "{:?}",
        cases
            .iter()
            .map(|case| &case.case.name[case.case.name.find(['[', ' ']).unwrap()..])
            .collect::<Vec<_>>()
    ))
}

#[test]
fn mistakes_are_named_with_their_place() {
    let unknown = written("[upstream]\nbody_byte = 3\n", "{}").unwrap_err();
    assert!(unknown.contains("scenario.toml:9:1: unknown field `body_byte`"), "{unknown}");
    assert!(unknown.ends_with("did you mean `body_bytes`?"), "{unknown}");
    let undefined = written("", "services:\n- url: {{ upstraem }}\n").unwrap_err();
    assert!(
        undefined.contains("kong.yml:2: there is no `upstraem`; did you mean `upstream`?"),
        "{undefined}"
    );
    let own = written("[upstream]\nbody_bytes = '{{ byts }}'\n[variables]\nbytes = 7\n", "{}").unwrap_err();
    assert!(own.contains("scenario.toml:9:15: there is no `byts`; did you mean `bytes`?"), "{own}");
    let word = written("[upstream]\nbody_bytes = \"many\"\n", "{}").unwrap_err();
    assert!(word.contains("scenario.toml:9:14: `many` is no number"), "{word}");
    let none = written("[profile.quick]\nthreads = 0\n", "{}");
    assert!(none.is_ok(), "a profile that is not used is not looked at");
    let yaml = written("", "services: [\n").unwrap_err();
    assert!(yaml.contains("kong.yml: does not make valid YAML"), "{yaml}");
    let host = written("", "services: [{name: s, host: elsewhere, routes: [{name: r}]}]\n").unwrap_err();
    assert!(host.contains("elsewhere:80 is neither an upstream of this file nor an address"), "{host}");
    let number = written("[upstream]\nbody_bytes = '{{ n }}'\n[variables]\nn = 'many'\n", "{}").unwrap_err();
    assert!(number.contains("`{{ n }}` makes `many`, which is no number"), "{number}");
    let drawn = written("[load.variables.a]\ncount = 2\nwith = 'b'\n", "{}").unwrap_err();
    assert!(drawn.contains("[load.variables.a] is drawn with b, which is no variable"), "{drawn}");
    let action = written("[[action]]\nname = 'a'\nevery = '3'\nreload = true\n", "{}").unwrap_err();
    assert!(action.contains("`3` is no duration; write a number and its unit"), "{action}");
}

#[test]
fn a_load_without_connections_is_refused_at_its_place() {
    for (key, line) in [("connections", 4), ("threads", 5)] {
        let folder = tempfile::tempdir().unwrap();
        let toml =
            "title = 't'\nsource = 's'\n[load]\nconnections = 1\nthreads = 1\n[[load.request]]\npath = '/'\n";
        let toml = toml.replace(&format!("{key} = 1"), &format!("{key} = 0"));
        std::fs::write(folder.path().join("scenario.toml"), toml).unwrap();
        std::fs::write(folder.path().join("kong.yml"), "{}").unwrap();
        let name = folder.path().to_str().unwrap().to_owned();
        let error = scenario::find(&[name], &root()).unwrap()[0].cases(None).unwrap_err().to_string();
        assert!(error.ends_with(&format!("scenario.toml:{line}:1: {key} = 0: write 1 or more")), "{error}");
    }
}

/// A scenario whose load is carried by this, over these schemes.
fn carried((protocol, load): (&str, &str), schemes: &str, rest: &str) -> Result<Vec<CasePlan>, String> {
    let folder = tempfile::tempdir().unwrap();
    let toml = format!(
        "title = 't'\nsource = 's'\nschemes = {schemes}\n{rest}[load]\nprotocol = '{protocol}'\n{load}connections = 1\n\
         threads = 1\n[[load.request]]\npath = '/'\n[[parity]]\npath = '/'\nstatus = 200\n"
    );
    std::fs::write(folder.path().join("scenario.toml"), toml).unwrap();
    std::fs::write(folder.path().join("kong.yml"), "{}").unwrap();
    let scenario = scenario::find(&[folder.path().to_str().unwrap().to_owned()], &root()).unwrap().remove(0);
    scenario.cases(None).map_err(|error| error.to_string())
}

#[test]
fn what_is_spoken_follows_from_scheme_and_protocol() {
    use weirlab::load::Protocol;
    for (protocol, schemes, expected, method, needs) in [
        ("http", "['https']", Protocol::Http1, "GET", &["https"][..]),
        ("http", "['h2']", Protocol::Http2 { streams: 10 }, "GET", &["h2"]),
        ("grpc", "['h2c']", Protocol::Grpc { streams: 10 }, "POST", &["grpc", "h2c"]),
        ("websocket", "['http']", Protocol::WebSocket, "GET", &["http", "websocket"]),
    ] {
        let case = carried((protocol, ""), schemes, "").unwrap().remove(0);
        assert_eq!(case.load.protocol, expected);
        assert_eq!(
            (case.load.requests.templates[0].method.as_str(), case.parity[0].method.as_str()),
            (method, method)
        );
        assert!(case.needs.iter().eq(needs), "{:?}", case.needs);
    }
    let first_byte = "first_byte = true\n";
    assert!(carried(("grpc", first_byte), "['h2']", "").unwrap()[0].load.first_byte);
    for (protocol, schemes, rest, why) in [
        (("grpc", ""), "['https']", "", "has calls of gRPC: give it schemes"),
        (("websocket", ""), "['h2']", "", "has WebSockets, which HTTP/1.1 carries"),
        (
            ("websocket", first_byte),
            "['http']",
            "",
            "times the first byte of bodies, of which WebSockets have none",
        ),
        (
            ("http", ""),
            "['h2']",
            "measure = 'idle-connections'\n",
            "measures what HTTP/1.1 alone is asked for",
        ),
    ] {
        let error = carried(protocol, schemes, rest).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_sweep_makes_a_case_of_each_value() {
    let swept = written("[[sweep]]\nvariable = 'n'\nvalues = [1, 2]\nwith = { m = [3, 4] }\n", "{}").unwrap();
    assert_eq!(swept, r#"["[n=1] https", "[n=2] https"]"#);
    let uneven =
        written("[[sweep]]\nvariable = 'n'\nvalues = [1, 2]\nwith = { m = [3] }\n", "{}").unwrap_err();
    assert!(uneven.ends_with("the sweep of n has 2 values, but m beside it 1; give each one"), "{uneven}");
}

#[test]
fn a_profile_changes_the_load_alone() {
    let plain = scenario::find(&["kong/plain-1".to_owned()], &root()).unwrap().remove(0);
    let connections = |scenario: &Scenario| scenario.cases(None).unwrap()[0].load.connections;
    assert_eq!(connections(&plain), 50);
    assert_eq!(connections(&plain.clone().in_profile("kong")), 300);
    assert_eq!(connections(&plain.in_profile("quick")), 50);
}

#[test]
fn a_target_says_what_it_lacks() {
    let needs = &cases("kong/rate-limiting-key-auth-1", Scheme::Https)[0].needs;
    assert_eq!(target("weir").lacks(needs), None);
    let why = target("nginx").lacks(needs).unwrap();
    assert!(
        why.starts_with("needs key-auth, rate-limiting: nginx has no key-auth with consumers; "),
        "{why}"
    );
}

#[test]
fn a_catalogue_must_have_both_folders() {
    let empty = tempfile::tempdir().unwrap();
    let error = weirlab::catalogue::root(Some(Path::new(empty.path()))).unwrap_err().to_string();
    assert!(error.contains("has no scenarios/ and targets/"), "{error}");
    assert_eq!(weirlab::catalogue::root(None).unwrap(), root());
}

/// The keys of the structs in a source file are what the formats have.
fn keys_are_documented(source: &str, page: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let source = std::fs::read_to_string(folder.join(source)).unwrap();
    let page = std::fs::read_to_string(root().join("docs/laboratory").join(page)).unwrap();
    let fields = source.lines().filter_map(|line| line.strip_prefix("    pub(super) ")?.split_once(':'));
    let keys: BTreeSet<&str> = fields.map(|(name, _)| name).collect();
    assert!(keys.len() > 20, "{keys:?}");
    let missing: Vec<_> = keys
        .iter()
        .filter(|key| !page.contains(&format!("`{key}`")) && !page.contains(&format!("`{key} =")))
        .collect();
    assert!(missing.is_empty(), "docs/laboratory does not speak of {missing:?}");
}

#[test]
fn every_key_is_documented() {
    keys_are_documented("scenario/file.rs", "scenarios.md");
    keys_are_documented("target/file.rs", "targets.md");
}
