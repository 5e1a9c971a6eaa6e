//! The cases of plugins: `tests/cases/plugins/NAME.toml` says what is configured and sent, and what the upstream, the
//! client and others must get. `PLUGIN=name` runs those of one plugin. `docs/writing-a-plugin.md` explains the files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub(crate) mod case;
mod expect;
mod http2;
pub(crate) mod run;
mod server;

use case::File;
use std::path::{Path, PathBuf};
use std::{env, fs, thread};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/plugins")
}

/// Plugins that say what they do where their cases would not.
const ELSEWHERE: [(&str, &str); 2] =
    [("mtls-auth", "needs client certificates: mutual_tls.rs"), ("prometheus", "is scraped: plugins.rs")];

#[test]
fn plugins_do_as_their_cases_say() {
    let only = env::var("PLUGIN").ok();
    let files = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let wanted = |path: &PathBuf| only.as_ref().is_none_or(|only| path.file_stem().unwrap() == &**only);
    let running: Vec<_> =
        files.filter(wanted).map(|path| thread::spawn(move || (run_file(&path), path))).collect();
    assert!(!running.is_empty(), "there is no such plugin");
    let faults: Vec<String> = running
        .into_iter()
        .flat_map(|thread| {
            let (faults, path) = thread.join().expect("a file of cases can be run; see above");
            let name = path.file_stem().unwrap().display().to_string();
            faults.into_iter().map(move |fault| format!("{name}: {fault}"))
        })
        .collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

fn run_file(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let file: File = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(!file.case.is_empty(), "{}: no cases", path.display());
    run::run(path.file_stem().unwrap().to_str().unwrap(), &file)
}

#[test]
fn every_plugin_has_cases() {
    let gateway = crate::harness::Gateway::start(&crate::harness::one_route(crate::harness::closed_port()));
    let root = gateway.admin("/").json();
    let plugins = root["plugins"]["available_on_server"].as_object().unwrap();
    for name in plugins.keys().filter(|name| ELSEWHERE.iter().all(|(elsewhere, _)| name != elsewhere)) {
        assert!(folder().join(format!("{name}.toml")).exists(), "{name} has no cases");
    }
}
