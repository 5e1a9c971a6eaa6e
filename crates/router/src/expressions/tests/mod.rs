//! The language, case by case, and beside Kong's own implementation.
mod agreement;
mod generator;

use super::{Connection, Expression, ExpressionError, Layer};
use crate::pattern::Patterns;
use crate::tests::route;
use weir_model::entity::Route;

fn compile(text: &str, layer: Layer) -> Result<Expression, ExpressionError> {
    Expression::compile(text, layer, &mut Patterns::default())
}

/// The reason why a text is refused, and where.
fn refused(text: &str) -> (String, usize, usize) {
    let error = compile(text, Layer::Http).err().unwrap_or_else(|| panic!("{text} is accepted"));
    (error.reason, error.line, error.column)
}

#[test]
fn an_error_says_what_is_wrong_and_where() {
    let cases = [
        ("", "expected term", 1, 1),
        ("! a == 1", "expected term", 1, 1),
        ("http.method == \"GET\" || ! b == 2", "expected term", 1, 25),
        ("http.path == \"/a\" &&", "expected term", 1, 21),
        ("http.path", "expected an operator", 1, 10),
        ("http.path is \"/a\"", "expected an operator", 1, 11),
        ("http.path ==", "expected a value", 1, 13),
        ("http.path == '/a'", "expected a value", 1, 14),
        ("http.path == \"/a", "the text has no end", 1, 14),
        ("http.path == \"\\d\"", "there is no such escape", 1, 14),
        ("http.path == \"/a\" http.path", "expected `&&`, `||` or the end", 1, 19),
        ("(http.path == \"/a\"", "expected `&&`, `||` or `)`", 1, 19),
        ("upper(http.path) == \"/a\"", "unknown transformation function: upper", 1, 1),
        ("lower(any(http.path) == \"/a\"", "expected `)`", 1, 22),
        ("http.path == \"/é\"\n  && net.foo == 1", "Unknown LHS field: `net.foo`", 2, 6),
        ("http.headers.a.b == \"1\"", "Unknown LHS field", 1, 1),
        ("http.path == 1", "Type mismatch between the LHS and RHS values of predicate", 1, 1),
        ("net.src.ip == 10.0.0.0/8", "Type mismatch", 1, 1),
        ("lower(net.src.port) == 1", "lower-case transformation function only supported with", 1, 1),
        ("net.src.port ~ \"1\"", "Regex operators only supports string operands", 1, 16),
        ("http.path ~ 1", "regex operator can only be used with String operands", 1, 13),
        ("http.path ~ \"a(\"", "unclosed group", 1, 13),
        ("net.src.port ^= 1", "Regex/Prefix/Postfix operators only supports string operands", 1, 1),
        ("http.path > \"/a\"", "Greater/GreaterOrEqual/Lesser/LesserOrEqual operators only supports", 1, 1),
        ("net.src.ip in 10.0.0.1", "In/NotIn operators only supports IP in CIDR", 1, 1),
        ("http.path not in 10.0.0.0/8", "In/NotIn operators only supports IP in CIDR", 1, 1),
        ("net.src.port contains 1", "Contains operator only supports string operands", 1, 1),
        ("net.src.ip in 10.0.0.1/8", "`10.0.0.1/8`: the address of a network has no bits", 1, 15),
        ("net.src.ip in fd00::/129", "`fd00::/129`: the prefix of an IPv6 network", 1, 15),
        ("net.src.ip == 10.0.0.256", "`10.0.0.256` is no IP address", 1, 15),
        ("net.src.port == 9223372036854775808", "`9223372036854775808`: number too large", 1, 17),
        ("http.path.segments.2_1 == \"a\"", "illformed http.path.segments.* field", 1, 1),
        ("http.path.segments.01 == \"a\"", "illformed http.path.segments.* field", 1, 1),
        ("net.port in 10.0.0.0/8", "Unknown LHS field: `net.port`", 1, 1),
    ];
    for (text, reason, line, column) in cases {
        let found = refused(text);
        assert!(found.0.starts_with(reason) && (found.1, found.2) == (line, column), "{text}: {found:?}");
    }
}

#[test]
fn an_error_says_how_to_fix_it() {
    let all = "==, !=, ~, ^=, =^, >=, >, <=, <, in, not in, contains";
    let operator = |hint: &str| format!("expected an operator, one of {all}{hint}");
    let joint = |end: &str| format!("expected `&&`, `||` or {end}");
    let cases: [(&str, &str); _] = [
        ("http.pth == \"/a\"", "Unknown LHS field: `http.pth`; did you mean `http.path`?"),
        ("htp.path == \"/a\"", "Unknown LHS field: `htp.path`; did you mean `http.path`?"),
        (
            "http.header.x_a == \"1\"",
            "Unknown LHS field: `http.header.x_a`; did you mean `http.headers.x_a`?",
        ),
        ("net.src.prt == 1", "Unknown LHS field: `net.src.prt`; did you mean `net.src.port`?"),
        ("a == 1", "Unknown LHS field: `a`"),
        ("http.path = \"/a\"", &operator("; write `==` to compare")),
        ("http.path =~ \"/a\"", &operator("; write `~` to match a regular expression")),
        ("not http.path == \"/a\"", &operator("; write `!(…)` around what is negated")),
        (
            "not(http.path == \"/a\")",
            "unknown transformation function: not; write `!(…)` around what is negated",
        ),
        ("http.headers.X-Foo-2 == \"1\"", &operator("; write `_` for `-`: `http.headers.x_foo_2`")),
        ("any(http.headers.a-b) == \"1\"", "expected `)`; write `_` for `-`: `http.headers.a_b`"),
        ("http.queries.a-b == \"1\"", &operator("")),
        (
            "http.path == \"/\" and http.path == \"/\"",
            &joint("the end of the expression; write `&&` for and"),
        ),
        ("(http.path == \"/\" OR http.path == \"/\")", &joint("`)`; write `||` for or")),
        ("http.path == \"/\" & http.path == \"/\"", &joint("the end of the expression; write `&&` for and")),
        ("http.path == \"/\" order", &joint("the end of the expression")),
        (
            "http.path == 5",
            "Type mismatch between the LHS and RHS values of predicate: `http.path` is a text; write \"5\"",
        ),
        (
            "net.src.port == \"5\"",
            "Type mismatch between the LHS and RHS values of predicate: `net.src.port` is a number; write one without quotes",
        ),
        (
            "net.src.ip == \"10.0.0.1\"",
            "Type mismatch between the LHS and RHS values of predicate: `net.src.ip` is an address; write one without quotes",
        ),
        (
            "net.src.ip == 10.0.0.0/8",
            "Type mismatch between the LHS and RHS values of predicate: `net.src.ip` is an address; write `in` for a network",
        ),
    ];
    for (text, reason) in cases {
        assert_eq!(refused(text).0, reason, "{text}");
    }
}

#[test]
fn what_is_probably_a_mistake_is_warned_of() {
    let warnings = |text: &str| {
        let route = Route { expression: Some(text.to_owned()), ..route(1) };
        super::warnings(&route)
            .iter()
            .map(|warning| (warning.reason.clone(), warning.column))
            .collect::<Vec<_>>()
    };
    let capitals = |field, outcome, lower| {
        format!(
            "`lower({field})` {outcome}, because the text beside it has capital letters; write \"{lower}\""
        )
    };
    assert_eq!(warnings("lower(http.path) == \"/A\""), [(capitals("http.path", "never matches", "/a"), 1)]);
    assert_eq!(
        warnings("http.path == \"/\" && !(any(lower(http.headers.a)) != \"B\")"),
        [(capitals("http.headers.a", "matches always", "b"), 23)]
    );
    let single =
        "`any(http.host)` has no effect, because the field has one value; leave `any()` out".to_owned();
    assert_eq!(warnings("any(http.host) == \"a\""), [(single, 1)]);
    for good in [
        "lower(http.path) == \"/a\"",
        "lower(http.path) ~ \"[A-Z]\"",
        "any(http.queries.q) == \"A\"",
        "http.path == \"/A\"",
    ] {
        assert!(warnings(good).is_empty(), "{good}");
    }
}

#[test]
fn parentheses_may_be_nested_a_hundred_deep() {
    let nested = |depth| format!("{}http.path == \"/\"{}", "(".repeat(depth), ")".repeat(depth));
    assert!(compile(&nested(100), Layer::Http).is_ok());
    assert!(refused(&nested(101)).0.starts_with("parentheses are nested"));
    assert!(refused(&"!(".repeat(100_000)).0.starts_with("parentheses are nested"));
    assert!(refused(&"lower(".repeat(100_000)).0.starts_with("expected a field"));
}

#[test]
fn streams_have_the_fields_of_connections_alone() {
    let connection = |protocol, sni| Connection {
        protocol,
        sni,
        source: ([10, 1, 2, 3], 40_000).into(),
        destination: ([192, 0, 2, 1], 9000).into(),
    };
    let matches = |text: &str, connection: &Connection<'_>| {
        compile(text, Layer::Stream).unwrap_or_else(|error| panic!("{text}: {error}")).matches(connection)
    };
    let tls = connection("tls", Some("a.test"));
    assert!(matches("net.protocol == \"tls\" && tls.sni =^ \".test\"", &tls));
    assert!(matches("net.src.ip in 10.0.0.0/8 && net.dst.port >= 0x2328", &tls));
    assert!(matches("net.port == 9000 && net.src.ip not in fd00::/8 && net.dst.ip == 192.0.2.1", &tls));
    assert!(
        !matches("tls.sni != \"b.test\"", &connection("tcp", None)),
        "a field without a value is never met"
    );
    assert!(compile("http.path == \"/\"", Layer::Stream).is_err());
}

#[test]
fn or_binds_tighter_than_and() {
    let udp = Connection {
        protocol: "udp",
        sni: None,
        source: ([10, 0, 0, 1], 1).into(),
        destination: ([10, 0, 0, 2], 2).into(),
    };
    let text = "net.src.port == 1 || net.src.port == 1 && net.src.port == 2";
    assert!(!compile(text, Layer::Stream).unwrap().matches(&udp));
    let text = "net.src.port == 2 && net.src.port == 2 || net.src.port == 1";
    assert!(!compile(text, Layer::Stream).unwrap().matches(&udp));
}
