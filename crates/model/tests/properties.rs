//! Reading never panics, always says where, and agrees with itself.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use proptest::prelude::*;
use weir_model::schema::Record;
use weir_model::{Document, Format};

fn read(text: &str, format: Format) -> Result<weir_model::ParsedDocument, Vec<weir_model::ConfigError>> {
    Document::read(text, format, crate::sample::PLUGINS, &|name| (name == "SET").then(|| "value".to_owned()))
}

/// Words that mean something to the reader, and characters that mean something to YAML.
const WORDS: &[&str] = &[
    "services",
    "routes",
    "plugins",
    "consumers",
    "upstreams",
    "targets",
    "certificates",
    "snis",
    "name",
    "url",
    "host",
    "paths",
    "config",
    "key-auth",
    "rate-limiting",
    "minute",
    "keyauth_credentials",
    "consumer_groups",
    "consumer_group_consumers",
    "groups",
    "consumer_group",
    "id",
    "tags",
    "_format_version",
    "\"3.0\"",
    "\"2.1\"",
    "_transform",
    "http://a.b:1/c",
    "/a",
    "~/a[",
    "${SET}",
    "${UNSET}",
    "$${",
    "${",
    "<<",
    "*x",
    "&x ",
    "null",
    "-1",
    "1e400",
    "0x",
    "true",
    "[",
    "]",
    "{",
    "}",
    ":",
    ",",
    "-",
    "?",
    "|",
    ">",
    "'",
    "\"",
    "#",
    "\t",
    "\u{e9}",
    "\u{feff}",
    "!!str ",
    "---",
    "...",
    "%YAML",
];

fn word() -> impl Strategy<Value = String> {
    prop_oneof![5 => proptest::sample::select(WORDS).prop_map(str::to_owned), 1 => "\\PC{0,4}"]
}

fn yaml_like() -> impl Strategy<Value = String> {
    let separator =
        proptest::sample::select(&["\n", "\n  ", "\n    ", "\n- ", "\n  - ", ": ", " ", "", ": [", ", "][..]);
    proptest::collection::vec((word(), separator), 0..60)
        .prop_map(|parts| parts.into_iter().map(|(word, separator)| word + separator).collect())
}

/// A text of the fuzz corpus with something cut out and a word put in.
fn mutated() -> impl Strategy<Value = String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/read");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let texts: Vec<_> = files.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let place = any::<proptest::sample::Index>();
    (proptest::sample::select(texts), place, 0usize..20, word()).prop_map(|(text, place, cut, word)| {
        let letters: Vec<char> = text.chars().collect();
        let start = place.index(letters.len());
        let end = (start + cut).min(letters.len());
        letters[..start].iter().copied().chain(word.chars()).chain(letters[end..].iter().copied()).collect()
    })
}

/// A configuration that is well-formed, with values that may be anything.
fn configuration() -> impl Strategy<Value = serde_json::Value> {
    let scalar = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i32>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        word().prop_map(Into::into),
    ];
    let value = scalar.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::Array),
            proptest::collection::vec((word(), inner), 0..6)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    });
    proptest::collection::vec((word(), value), 0..5).prop_map(|members| {
        let mut root: serde_json::Map<_, _> = members.into_iter().collect();
        root.insert("_format_version".to_owned(), "3.0".into());
        serde_json::Value::Object(root)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_global_rejects: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn text_that_looks_like_yaml_never_panics(text in yaml_like()) {
        let _ = read(&text, Format::Yaml);
        let _ = read(&text, Format::Json);
    }

    #[test]
    fn a_damaged_file_never_panics(text in mutated()) {
        for format in [Format::Yaml, Format::Json] {
            if let Err(problems) = read(&text, format) {
                prop_assert!(problems.iter().all(|problem| problem.at.line > 0), "{:?}", problems);
            }
        }
    }

    #[test]
    fn problems_have_a_place_in_the_file_and_are_in_order(value in configuration()) {
        let text = serde_json::to_string_pretty(&value).unwrap();
        if let Err(problems) = read(&text, Format::Json) {
            let lines = text.lines().count() as u32;
            prop_assert!(!problems.is_empty());
            for problem in &problems {
                prop_assert!((1..=lines).contains(&problem.at.line) && problem.at.column > 0, "{}", problem);
            }
            prop_assert!(problems.is_sorted());
        }
    }

    #[test]
    fn json_reads_the_same_as_yaml_and_as_json(value in configuration()) {
        let text = serde_json::to_string(&value).unwrap();
        // YAML has no escapes for surrogates, and reads some numbers otherwise.
        prop_assume!(text.is_ascii() && !text.contains('\\') && !text.contains("e+") && !text.contains("\"<<\""));
        match (read(&text, Format::Json), read(&text, Format::Yaml)) {
            (Ok(json), Ok(yaml)) => prop_assert_eq!(json.document, yaml.document),
            (Err(json), Err(yaml)) => prop_assert_eq!(json.len(), yaml.len(), "{:?} {:?}", json, yaml),
            (json, yaml) => prop_assert!(false, "{:?} {:?}", json.err(), yaml.err()),
        }
    }

    #[test]
    fn what_is_read_can_be_written_and_read_again(
        retries in 0u16..=32767, port in any::<u16>(), path in proptest::option::of("/[a-z]{1,8}"),
        tags in proptest::option::of(proptest::collection::vec("[a-z]{1,5}", 0..4)), enabled in any::<bool>(),
    ) {
        let service = serde_json::json!({
            "name": "s", "host": "h", "retries": retries, "port": port, "path": path, "tags": tags, "enabled": enabled,
        });
        let file = serde_json::json!({ "_format_version": "3.0", "services": [service] });
        let first = read(&file.to_string(), Format::Json).unwrap().document;
        prop_assert_eq!(first.services[0].retries, retries);
        prop_assert_eq!(&first.services[0].path, &path);
        let written = serde_json::json!({ "_format_version": "3.0", "services": [first.services[0].to_value()] });
        let second = read(&written.to_string(), Format::Json).unwrap().document;
        prop_assert_eq!(first, second);
    }
}

#[test]
fn a_file_with_very_many_mistakes_is_read_in_no_time() {
    let mut text = String::from("_format_version: \"3.0\"\nroutes:\n");
    for number in 0..5000 {
        text.push_str(&format!(
            "- name: route-{number}\n  service: service-{number}\n  paths: [/{number}]\n"
        ));
    }
    let problems = read(&text, Format::Yaml).unwrap_err();
    assert_eq!(problems.len(), 5000);
}

#[test]
fn nesting_is_bounded() {
    for (open, format) in
        [("[", Format::Json), ("[", Format::Yaml), ("{\"a\":", Format::Json), ("- ", Format::Yaml)]
    {
        let problems = read(&open.repeat(100_000), format).unwrap_err();
        let message = &problems[0].message;
        assert!(message.contains("levels deep") || message.contains("recursion limit"), "{message}");
    }
}
