use super::*;
use std::fs;

/// A suite as read from this text.
fn suite(text: &str, given: &[&str]) -> Result<Suite, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.toml");
    fs::write(&path, text).unwrap();
    let given: Vec<Given> = given.iter().map(|text| text.parse().unwrap()).collect();
    let read = Suite::find(path.to_str().unwrap(), &given, folder.path());
    read.map_err(|error| error.to_string().replace(path.to_str().unwrap(), "own.toml"))
}

const LOOPS: &str = r#"
title = "loops"
rounds = 3
duration = "2s"

[parameters]
workers = [1, 2]
case = ["a", "b"]
version = ["git:main", "v1"]
connections = 16

[[run]]
scenario = "own/{{ case }}"
scheme = "http"
targets = ["weir@{{ version }}", "nginx"]
workers = "{{ workers }}"
connections = "{{ connections * 2 }}"

[[run]]
scenario = "other"
targets = ["nginx"]
flame = "5s"
"#;

#[test]
fn a_run_is_repeated_over_the_lists_that_it_mentions() {
    let read = suite(LOOPS, &[]).unwrap();
    assert_eq!((read.rounds, read.duration), (Some(3), Some(Duration::from_secs(2))));
    let seen: Vec<_> = read
        .entries
        .iter()
        .map(|entry| (entry.scenario.as_str(), entry.change.workers, entry.change.connections))
        .collect();
    let wanted = [
        ("own/a", Some(1), Some(32)),
        ("own/a", Some(2), Some(32)),
        ("own/b", Some(1), Some(32)),
        ("own/b", Some(2), Some(32)),
        ("other", None, None),
    ];
    assert_eq!(seen, wanted);
    // A list among targets is one of targets, which are compared with each other.
    assert_eq!(read.entries[0].targets, ["weir@git:main", "weir@v1", "nginx"]);
    assert_eq!(read.entries[4].flame, Some(Duration::from_secs(5)));
    let at: Vec<_> =
        read.entries[1].change.at.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(at, ["case=\"a\"", "workers=2"]);
}

#[test]
fn the_command_line_replaces_parameters() {
    let read = suite(LOOPS, &["workers=4", "connections=8,64", "case=a"]).unwrap();
    let seen: Vec<_> =
        read.entries.iter().map(|entry| (entry.change.workers, entry.change.connections)).collect();
    assert_eq!(seen, [(Some(4), Some(16)), (Some(4), Some(128)), (None, None)]);
    let error = suite(LOOPS, &["conections=8"]).unwrap_err();
    assert_eq!(
        error,
        "own.toml: there is no parameter `conections` in [parameters]; did you mean `connections`?"
    );
}

#[test]
fn a_parameter_of_a_run_is_its_own() {
    let text = "title = \"own\"\n[parameters]\nn = 1\n[[run]]\nscenario = \"x{{ n }}\"\ntargets = []\n\
                parameters = { n = [2, 3] }\n[[run]]\nscenario = \"x{{ n }}\"\ntargets = []\n";
    let read = suite(text, &[]).unwrap();
    let seen: Vec<&str> = read.entries.iter().map(|entry| entry.scenario.as_str()).collect();
    assert_eq!(seen, ["x2", "x3", "x1"]);
}

#[test]
fn mistakes_are_named_with_place_and_fix() {
    let cases = [
        (
            LOOPS.replace("scheme =", "shceme ="),
            "own.toml:14:1: unknown field `shceme`",
            "did you mean `scheme`?",
        ),
        (
            LOOPS.replace("{{ workers }}", "{{ wrokers }}"),
            "own.toml:16:11: there is no parameter `wrokers`",
            "did you mean `workers`?",
        ),
        (
            LOOPS.replace("\"http\"", "\"htp\""),
            "own.toml:14:10: htp is no scheme",
            "use http, https, h2 or h2c",
        ),
        (
            LOOPS.replace("[1, 2]", "[1, \"two\"]"),
            "own.toml:16:11: \"two\" should be a number above 0",
            "template",
        ),
        (
            LOOPS.replace("connections * 2", "connections / 3"),
            "own.toml:17:15: 5.3",
            "a whole number from 1 on",
        ),
        (LOOPS.replace("rounds = 3", "rounds = 0"), "own.toml:3:10: ", "nonzero"),
        (
            LOOPS.replace("connections = \"{{ connections * 2 }}\"", ""),
            "own.toml:10:1: no run mentions the parameter `connections`",
            "{{ connections }}",
        ),
        (LOOPS.replace("{{ case }}", "{{ case"), "own.toml:13:12: syntax error", ""),
    ];
    for (text, place, fix) in cases {
        let error = suite(&text, &[]).unwrap_err();
        assert!(error.starts_with(place) && error.contains(fix), "{error}");
    }
    assert!("workers".parse::<Given>().unwrap_err().contains("NAME=VALUE"));
}
