//! The index finds what the linear matcher finds, on routes and requests drawn from few values, so that
//! collisions, nested prefixes, wildcards and ties are common.
use super::reference::{Expected, Reference};
use super::{Request, route};
use crate::{Calculation, Decided, Order, Router, normalize_path, upstream_path};
use proptest::collection::{btree_map, vec};
use proptest::option::{of, weighted};
use proptest::prelude::*;
use proptest::sample::select;
use weir_model::entity::Route;

const HOSTS: &[&str] = &[
    "a.com",
    "b.com",
    "x.a.com",
    "y.x.a.com",
    "*.a.com",
    "*.x.a.com",
    "*.com",
    "a.*",
    "x.a.*",
    "a.com:8000",
    "a.com:81",
    "*.a.com:81",
    "A.com",
    "*",
    "*a.com",
    "x*",
];
const PATHS: &[&str] = &[
    "/",
    "/a",
    "/a/",
    "/ab",
    "/a/b",
    "/a/c",
    "/a/b/",
    "/a/b/c",
    "/a/bcd",
    "/b",
    "/b/c",
    "/abc/def",
    "/ab/c/d/e",
    "/é",
    "~/a",
    "~/a/(?<id>\\d+)",
    "~/a/[bc]",
    "~/(a|b)/c",
    "~/a/b$",
    "~/ab?",
    "~(?i)/AB",
    "~/a|/c",
    "~.*/c",
    "~",
    "~/a/(b)(x)?",
];
const REQUEST_HOSTS: &[&str] = &[
    "a.com",
    "A.COM",
    "b.com",
    "x.a.com",
    "y.x.a.com",
    "Z.Y.X.a.com",
    "a.org",
    "x.a.org",
    "a.com:81",
    "a.com:8000",
    "x.a.com:81",
    "xa.com",
    "a.com:",
    "a.com:b",
    "",
    "[::1]:81",
    "com",
    ".com",
    "x",
];
const REQUEST_PATHS: &[&str] = &[
    "/",
    "/a",
    "/a/",
    "/ab",
    "/abc",
    "/a/b",
    "/a/b/",
    "/a/b/c",
    "/a/bcd",
    "/a/bx",
    "/a/c",
    "/a/12",
    "/a/12/x",
    "/b",
    "/b/c",
    "/c",
    "/x/c",
    "/abc/def/g",
    "/ab/c/d/e/f",
    "/AB",
    "/Abc",
    "/é/x",
    "*",
];
const METHODS: &[&str] = &["GET", "POST", "PUT"];
const SNIS: &[&str] = &["a.com", "a.com.", "b.com", "*.a.com"];
const HEADERS: &[&str] = &["1", "ABC", "~*^[a-c]+$", "~*[0-9]"];
const REQUEST_HEADERS: &[&str] = &["1", "abc", "Abcd", "12"];

fn values(from: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<String>> {
    vec(select(from).prop_map(str::to_owned), 1..=most)
}

fn any_route() -> impl Strategy<Value = Route> {
    let headers =
        btree_map(select(&["x-one", "X_Two"][..]).prop_map(str::to_owned), values(HEADERS, 2), 0..3);
    let criteria = (
        weighted(0.5, values(HOSTS, 3)),
        weighted(0.8, values(PATHS, 4)),
        weighted(0.3, values(METHODS, 2)),
        weighted(0.3, headers),
        weighted(0.15, values(SNIS, 2)),
    );
    let regex_priority = select(&[0, 0, 0, 1, 100, 5000, -1][..]);
    (0u128..6, regex_priority, criteria).prop_map(
        |(id, regex_priority, (hosts, paths, methods, headers, snis))| Route {
            hosts,
            paths,
            methods,
            headers,
            snis,
            regex_priority,
            ..route(id << 64)
        },
    )
}

fn any_route_to_one_path() -> impl Strategy<Value = Route> {
    let values = values(&["1", "ABC", "abcd", "2", "12", "ABC", "~*[0-9]"], 2);
    let headers = btree_map(select(&["x-one", "X_Two"][..]).prop_map(str::to_owned), values, 0..3);
    (0u128..6, weighted(0.2, self::values(METHODS, 2)), of(headers)).prop_map(|(id, methods, headers)| {
        Route { paths: Some(vec!["/".into()]), methods, headers, ..route(id << 64) }
    })
}

fn any_request() -> impl Strategy<Value = Request> {
    let names = select(&["x-one", "x-two"][..]).prop_map(str::to_owned);
    (
        select(METHODS),
        select(REQUEST_HOSTS),
        select(REQUEST_PATHS),
        any::<bool>(),
        of(select(&["a.com", "b.com", "x.a.com"][..])),
        select(&[81, 8000][..]),
        btree_map(names, values(REQUEST_HEADERS, 2), 0..3),
    )
        .prop_map(|(method, host, path, https, sni, port, headers)| Request {
            method: method.into(),
            host: host.into(),
            path: path.into(),
            https,
            sni: sni.map(str::to_owned),
            port,
            headers,
            ..Request::default()
        })
}

/// Gives equal routes different ids, in an order that is not that of their places.
fn distinct(mut routes: Vec<Route>) -> Vec<Route> {
    for (place, route) in routes.iter_mut().enumerate() {
        route.id = weir_model::Uuid::from_u128(route.id.as_u128() | (place as u128 * 7919 % 101));
    }
    routes
}

fn found(router: &Router, request: &Request) -> Expected {
    let found = request.query(|query| router.find(query))?;
    let groups =
        found.captures.map(|captures| captures.iter().map(|(_, text)| text.map(str::to_owned)).collect());
    Some((found.index as usize, found.matched_path as usize, groups))
}

/// The first judged route whose criteria are all met. Checks that each judged route stands above the next.
fn judged_best(router: &Router, routes: &[Route], request: &Request) -> Option<usize> {
    let judged = request.query(|query| router.judge(&routes.iter().collect::<Vec<_>>(), query));
    for pair in judged.windows(2) {
        let [better, other] = pair else { unreachable!("windows of two") };
        match better.standing.above(&other.standing) {
            Decided::Priority(..) => assert!(better.standing.priority > other.standing.priority),
            Decided::Age => panic!("routes have no age in this flavor"),
            Decided::Id => assert_eq!(better.standing.priority, other.standing.priority),
        }
    }
    judged.iter().find(|judged| judged.failed.is_empty()).map(|judged| judged.index as usize)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn index_agrees_with_linear_matcher(
        routes in vec(any_route(), 0..40).prop_map(distinct),
        requests in vec(any_request(), 25),
        strict in any::<bool>(),
    ) {
        let calculation = if strict { Calculation::Strict } else { Calculation::Original };
        let router = Router::build_with(
            &routes.iter().collect::<Vec<_>>(),
            Order { calculation, ..Order::default() },
        ).unwrap();
        let reference = Reference::new(&routes, calculation);
        for request in &requests {
            let expected = reference.find(request);
            prop_assert_eq!(judged_best(&router, &routes, request), expected.as_ref().map(|found| found.0));
            prop_assert_eq!(found(&router, request), expected, "for {:?}", request);
        }
    }

    #[test]
    fn index_agrees_where_only_methods_and_headers_differ(
        routes in vec(any_route_to_one_path(), 9..100).prop_map(distinct),
        requests in vec(any_request(), 20),
    ) {
        let router = Router::build(&routes.iter().collect::<Vec<_>>()).unwrap();
        let reference = Reference::new(&routes, Calculation::default());
        for request in &requests {
            prop_assert_eq!(found(&router, request), reference.find(request), "for {:?}", request);
        }
    }

    #[test]
    fn index_agrees_on_arbitrary_prefixes(
        paths in vec("(/[ab]{0,3}){1,6}", 1..60),
        requests in vec("(/[ab]{0,4}){1,8}", 30),
    ) {
        let routes: Vec<Route> =
            (0..).zip(paths).map(|(id, path)| Route { paths: Some(vec![path]), ..route(id) }).collect();
        let router = Router::build(&routes.iter().collect::<Vec<_>>()).unwrap();
        let reference = Reference::new(&routes, Calculation::default());
        for path in requests {
            let request = Request { path, ..Request::default() };
            prop_assert_eq!(found(&router, &request), reference.find(&request));
        }
    }

    #[test]
    fn literals_of_a_regex_never_hide_it(
        patterns in vec("(\\^)?/(a|b|ab|[ab]|a\\?|b\\*|\\(a\\|b\\)|\\(/a\\|b/\\)|\\.|\\(\\?i:a\\)|\\|/a|\\$){0,5}", 1..12),
        requests in vec("(/[abAB]{0,3}){1,3}", 20),
    ) {
        let path = |pattern: String| Some(vec![format!("~{pattern}")]);
        let routes: Vec<Route> =
            (0..).zip(patterns).map(|(id, pattern)| Route { paths: path(pattern), ..route(id) }).collect();
        let router = Router::build(&routes.iter().collect::<Vec<_>>()).unwrap();
        let reference = Reference::new(&routes, Calculation::default());
        for path in requests {
            let request = Request { path, ..Request::default() };
            prop_assert_eq!(found(&router, &request), reference.find(&request));
        }
    }

    #[test]
    fn normal_paths_stay_as_they_are(path in "(/|//|\\.|\\.\\.|a|%|%2|%2e|%2E|%2F|%41|%C3%A9|%FF|%3|4|1|é){0,12}") {
        let once = normalize_path(&path).into_owned();
        prop_assert_eq!(normalize_path(&once), &*once);
    }

    #[test]
    fn normal_paths_have_no_dot_segments(path in "(/|//|\\.|\\.\\.|a|%2e|%2E|%2F|%32e|%){0,12}") {
        let normal = normalize_path(&format!("/{path}")).into_owned();
        prop_assert!(normal.starts_with('/'));
        prop_assert!(normal.split('/').all(|segment| segment != "." && segment != ".."), "{}", normal);
        prop_assert!(!normal.contains("//") && !normal.to_lowercase().contains("%2e"), "{}", normal);
    }

    #[test]
    fn nothing_unsafe_goes_upstream(path in "/\\PC{0,12}|(/|[\\x00-\\x20]|é){0,12}", matched in 0usize..6, strip in any::<bool>()) {
        let mut out = b"GET ".to_vec();
        upstream_path(&mut out, Some("/srv"), &path, matched, strip);
        prop_assert!(out.starts_with(b"GET /srv"));
        prop_assert!(out[4..].iter().all(u8::is_ascii_graphic));
    }
}
