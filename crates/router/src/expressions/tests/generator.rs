//! Random expressions and requests, from few values, so that they often match.
use crate::tests::Request;
use fastrand::Rng;

const TEXT_FIELDS: &[&str] = &[
    "http.path",
    "http.path",
    "http.path",
    "http.host",
    "http.host",
    "http.method",
    "net.protocol",
    "tls.sni",
    "http.path.segments.0",
    "http.path.segments.1",
    "http.path.segments.0_1",
    "http.path.segments.1_3",
    "http.headers.x_one",
    "http.headers.X_Two",
    "http.queries.q",
    "http.queries.Q",
];
const TEXTS: &[&str] = &[
    "/a", "/a/b", "/a/b/", "/A", "/", "a", "b", "a/b", "a.com", "x.a.com", ".com", "x.", "GET", "get",
    "POST", "http", "https", "1", "2", "k", "é", "", "\u{130}",
];
const REGEXES: &[&str] = &[
    "^/a",
    "^/a/(b)",
    "b$",
    "(?P<id>[a-c])",
    "/(a)|(b)",
    "^/(?<id>[^/]+)/(?<rest>.*)$",
    "a",
    "^(?i)/A",
    "[0-9]",
    "(x)?",
    "^$",
    "^/a|^/b",
    "(",
    "é",
];
const INTEGER_FIELDS: &[&str] = &["net.src.port", "net.dst.port", "http.path.segments.len"];
const INTEGERS: &[&str] = &["80", "81", "8000", "0x1f40", "017500", "2", "3", "0", "-1", "00", "09", "40000"];
const ADDRESS_FIELDS: &[&str] = &["net.src.ip", "net.dst.ip"];
const ADDRESSES: &[&str] = &["10.0.0.1", "10.0.0.2", "fd00::1", "::1"];
const NETWORKS: &[&str] =
    &["10.0.0.0/8", "0.0.0.0/0", "10.0.0.1/32", "fd00::/8", "::/0", "10.0.0.0/31", "10.0.0.1/8"];
const COMPARISONS: &[&str] = &["==", "!=", ">", ">=", "<", "<="];
const TEXT_OPERATORS: &[&str] = &["==", "==", "!=", "^=", "^=", "=^", "contains"];
const ALL_OPERATORS: &[&str] =
    &["==", "!=", "^=", "=^", "contains", "~", ">", ">=", "<", "<=", "in", "not in"];
const CHARACTERS: &[char] =
    &['"', '(', ')', '!', '&', '|', '=', '~', '#', 'r', '/', '.', '1', 'x', ' ', '\\', ':', '<'];

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.usize(..from.len())]
}

/// An expression. One in five has a mistake, or may have.
pub(super) fn expression(rng: &mut Rng) -> String {
    let mut text = if rng.u8(..4) == 0 { usual(rng) } else { node(rng, 3) };
    if rng.u8(..10) == 0 {
        mutate(rng, &mut text);
    }
    text
}

/// An expression as routes usually have them, of which the index checks most.
fn usual(rng: &mut Rng) -> String {
    let path = pick(rng, &["/a", "/a/b", "/", "/b", "/a/b/"]);
    let mut conjuncts = vec![
        format!("(http.path == \"{path}\" || http.path ^= \"{path}/\")"),
        format!(
            "(http.host == \"{}\" || http.host =^ \".com\")",
            pick(rng, &["a.com", "A.com", "x.a.com", ""])
        ),
        format!(
            "http.host {} \"{}\"",
            pick(rng, &["==", "^=", "=^"]),
            pick(rng, &["a.com", "x.", ".com", "m"])
        ),
        format!("(http.method == \"GET\" || http.method == \"{}\")", pick(rng, &["POST", "get"])),
        format!("!(net.dst.port == 80 && net.dst.port == {})", pick(rng, &["80", "81"])),
        format!("net.dst.port {} {}", pick(rng, COMPARISONS), pick(rng, INTEGERS)),
        format!("!(!(net.src.port {} {}))", pick(rng, COMPARISONS), pick(rng, INTEGERS)),
        format!("!(net.dst.port {} {})", pick(rng, COMPARISONS), pick(rng, INTEGERS)),
        predicate(rng),
    ];
    rng.shuffle(&mut conjuncts);
    conjuncts.truncate(rng.usize(1..4));
    conjuncts.join(" && ")
}

fn node(rng: &mut Rng, depth: u32) -> String {
    if depth == 0 || rng.u8(..3) == 0 {
        return predicate(rng);
    }
    let mut text = term(rng, depth);
    for _ in 0..rng.u8(..3) {
        let joint = if rng.bool() { "&&" } else { " || " };
        text = text + joint + &term(rng, depth);
    }
    text
}

fn term(rng: &mut Rng, depth: u32) -> String {
    match rng.u8(..6) {
        0 => format!("!({})", node(rng, depth - 1)),
        1 => format!("! ( {} )", node(rng, depth - 1)),
        2 | 3 => format!("({})", node(rng, depth - 1)),
        _ => predicate(rng),
    }
}

fn predicate(rng: &mut Rng) -> String {
    if rng.u8(..60) == 0 {
        let field = pick(rng, &["http.path", "net.src.port", "net.dst.ip", "a", "http.headers.a.b", "net"]);
        let value = pick(rng, &["\"/a\"", "1", "10.0.0.1", "10.0.0.0/8"]);
        return format!("{} {} {value}", functions(rng, field), pick(rng, ALL_OPERATORS));
    }
    match rng.u8(..10) {
        0 => format!("{}{}{}", pick(rng, INTEGER_FIELDS), pick(rng, COMPARISONS), pick(rng, INTEGERS)),
        1 => {
            let (operator, values) = match rng.u8(..4) {
                0 => ("==", ADDRESSES),
                1 => ("!=", ADDRESSES),
                2 => ("in", NETWORKS),
                _ => ("not in", NETWORKS),
            };
            format!("{} {operator} {}", pick(rng, ADDRESS_FIELDS), pick(rng, values))
        }
        2 | 3 => {
            let field = pick(rng, TEXT_FIELDS);
            format!("{} ~ r#\"{}\"#", functions(rng, field), pick(rng, REGEXES))
        }
        _ => {
            let field = pick(rng, TEXT_FIELDS);
            format!("{} {} \"{}\"", functions(rng, field), pick(rng, TEXT_OPERATORS), pick(rng, TEXTS))
        }
    }
}

fn functions(rng: &mut Rng, field: &str) -> String {
    match rng.u8(..8) {
        0 => format!("lower({field})"),
        1 => format!("any( {field} )"),
        2 => format!("any(lower({field}))"),
        3 => format!("lower (any({field}))"),
        _ => field.to_owned(),
    }
}

/// Removes or inserts a character.
fn mutate(rng: &mut Rng, text: &mut String) {
    let at = rng.usize(..text.len() + 1);
    let at = text.floor_char_boundary(at);
    if rng.bool() && at < text.len() {
        text.remove(at);
    } else {
        text.insert(at, CHARACTERS[rng.usize(..CHARACTERS.len())]);
    }
}

/// A request.
pub(super) fn request(rng: &mut Rng) -> Request {
    let values = |rng: &mut Rng| (0..rng.u8(..3)).map(|_| pick(rng, TEXTS).to_owned()).collect::<Vec<_>>();
    let headers = [("x-one", values(rng)), ("x-two", values(rng))];
    let address = |rng: &mut Rng| pick(rng, ADDRESSES).parse::<std::net::IpAddr>().unwrap();
    Request {
        method: pick(rng, &["GET", "POST", "get"]).to_owned(),
        host: pick(rng, &["a.com", "A.COM", "x.a.com", "x.a.com:81", "b.org", "a.com:80", ""]).to_owned(),
        path: pick(
            rng,
            &["/", "/a", "/A", "/a/b", "/a/b/", "/a/b/a", "/a/c/d/e", "/ab", "/b", "/é", "/\u{130}/a", "*"],
        )
        .to_owned(),
        https: rng.bool(),
        sni: rng.bool().then(|| pick(rng, &["a.com", "x.a.com"]).to_owned()),
        query: pick(rng, &["", "q=1", "q=1&q=2", "q", "Q=a&q=%2Fa", "q=+&=1", "Q=1&Q=1"]).to_owned(),
        source: (address(rng), [80, 40_000][rng.usize(..2)]).into(),
        destination: address(rng),
        port: [80, 8000][rng.usize(..2)],
        headers: headers.into_iter().map(|(name, values)| (name.to_owned(), values)).collect(),
    }
}
