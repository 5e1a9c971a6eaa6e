//! The Admin API as tools see it: sequences of requests, in `cases`, against the real binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod run;
mod subset;
mod writers;

use run::run;
use std::collections::BTreeSet;
use std::path::Path;

macro_rules! files {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )*
        const FILES: &[&str] = &[$(stringify!($name)),*];
    };
}

files! {
    bodies,
    certificates,
    conditions,
    consumer_groups,
    consumers,
    credentials,
    deck,
    declarative,
    errors,
    flattened_errors,
    keys,
    messages,
    methods,
    pages,
    plugins,
    references,
    routes,
    services,
    streams,
    upstreams,
    vaults,
    warnings,
}

#[test]
fn no_file_of_cases_is_left_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/admin/cases");
    let files =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<String> = files.map(|name| name.trim_end_matches(".json").to_owned()).collect();
    assert_eq!(files, FILES.iter().map(|name| (*name).to_owned()).collect());
}
