//! Templates and variables, as a server sees them.
use super::server::{Server, plain};
use super::{get, plan, run};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use weirlab::load::{self, Distribution, Plan, RequestTemplate, Requests, Values, Variable};

type Seen = Arc<Mutex<Vec<(String, Option<String>, String)>>>;

/// Keeps path, `apikey` and body of every request.
fn keeping() -> (Server, Seen) {
    let seen = Seen::default();
    let keep = seen.clone();
    let server = Server::start(move |request, writer| {
        let key = request.header("apikey").map(str::to_owned);
        keep.lock().unwrap().push((request.path().to_owned(), key, request.body.clone()));
        plain(writer, 200, "")
    });
    (server, seen)
}

fn numbers(name: &str, first: u64, count: u64, distribution: Distribution) -> Variable {
    Variable { name: name.to_owned(), values: Values::Numbers { first, count }, distribution, with: None }
}

fn words(name: &str, words: &[&str], with: Option<&str>) -> Variable {
    Variable {
        name: name.to_owned(),
        values: Values::Words(words.iter().map(|word| (*word).to_owned()).collect()),
        distribution: Distribution::Uniform,
        with: with.map(str::to_owned),
    }
}

#[test]
fn places_are_filled_together_or_independently() {
    let (server, seen) = keeping();
    let template = RequestTemplate {
        method: "POST".to_owned(),
        path: "/r{route}?u={user}".to_owned(),
        headers: vec![("apikey".to_owned(), "key-{key}".to_owned())],
        body: r#"{"user":"{user}", {unknown}}"#.to_owned(),
        ..get("/")
    };
    let variables = vec![
        words("key", &["a", "bb", "ccc"], Some("route")),
        numbers("route", 9, 3, Distribution::Uniform),
        words("user", &["ann", "bob"], None),
    ];
    let requests = Requests { templates: vec![template], variables };
    let outcome = run(&Plan { requests, ..plan(&server) });
    assert!(outcome.good > 100 && outcome.errors.is_empty(), "{:?}", outcome.errors);
    let seen: BTreeSet<_> = seen.lock().unwrap().iter().cloned().collect();
    let mut expected = BTreeSet::new();
    for (route, key) in [(9, "a"), (10, "bb"), (11, "ccc")] {
        for user in ["ann", "bob"] {
            let body = format!(r#"{{"user":"{user}", {{unknown}}}}"#);
            expected.insert((format!("/r{route}?u={user}"), Some(format!("key-{key}")), body));
        }
    }
    assert_eq!(seen, expected);
}

#[test]
fn templates_are_chosen_by_weight() {
    let (server, seen) = keeping();
    let weighted = |weight, path| RequestTemplate { weight, ..get(path) };
    let templates = vec![weighted(1, "/a"), weighted(3, "/b"), weighted(0, "/never")];
    run(&Plan { requests: Requests { templates, variables: Vec::new() }, ..plan(&server) });
    let mut counts = BTreeMap::new();
    seen.lock().unwrap().iter().for_each(|(path, ..)| *counts.entry(path.clone()).or_insert(0u32) += 1);
    let (a, b) = (f64::from(counts["/a"]), f64::from(counts["/b"]));
    let deviation = (0.25f64 * 0.75 / (a + b)).sqrt();
    assert!((b / (a + b) - 0.75).abs() < 5.0 * deviation, "{a} and {b}");
    assert_eq!(counts.len(), 2);
}

#[test]
fn the_same_seed_asks_the_same() {
    let asked = || {
        let (server, seen) = keeping();
        let requests = Requests {
            templates: vec![get("/{n}")],
            variables: vec![numbers("n", 0, 1000, Distribution::Zipf(1.0))],
        };
        run(&Plan { requests, connections: 1, seed: 42, ..plan(&server) });
        let seen = seen.lock().unwrap();
        seen.iter().take(50).map(|(path, ..)| path.clone()).collect::<Vec<_>>()
    };
    let first = asked();
    assert_eq!(first, asked());
    assert!(first.iter().collect::<BTreeSet<_>>().len() > 10);
}

#[test]
fn plans_that_make_no_sense_are_refused_with_a_reason() {
    let (server, _) = keeping();
    let refusal = |template: RequestTemplate, variables: Vec<Variable>| {
        let requests = Requests { templates: vec![template], variables };
        let plan = Plan { requests, ..plan(&server) };
        load::run(&plan, &mut |_| {}, &AtomicBool::new(false)).unwrap_err().to_string()
    };
    let check = |refusal: String, why: &str| assert!(refusal.contains(why), "{refusal}");
    check(refusal(get("/{rout}"), vec![words("route", &["a"], None)]), "names {rout}");
    check(refusal(get("no-slash"), Vec::new()), "must begin with /");
    check(refusal(get("/"), vec![words("a", &[], None)]), "has no values");
    check(refusal(get("/"), vec![words("a", &["x"], Some("b"))]), "not declared");
    let fewer = vec![words("a", &["x"], Some("b")), words("b", &["y", "z"], None)];
    check(refusal(get("/"), fewer), "needs 2");
    let circle = vec![words("a", &["x"], Some("b")), words("b", &["y"], Some("a"))];
    check(refusal(get("/"), circle), "drawn with another");
    let smuggling = ("x".to_owned(), "y\r\nz: w".to_owned());
    check(refusal(RequestTemplate { headers: vec![smuggling], ..get("/") }, Vec::new()), "cannot be sent");
}
