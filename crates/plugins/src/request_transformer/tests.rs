//! Templates: their values, and which are invalid.

use super::template::Template;
use crate::PLUGINS;
use serde_json::json;
use weir_plugin::WantsBody;
use weir_plugin::testing::Gateway;

fn render(template: &str, request: &str) -> String {
    let exchange = Gateway::new(PLUGINS).exchange(request);
    let mut out = Vec::new();
    Template::parse(template).unwrap().expect("a template").render(&exchange, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn templates_are_worth_what_lua_says() {
    let request = "GET /p?q=a%20b&flag&n=1&n=2\nX-One: first\nX-One: second\nAuthorization: Bearer abc\nx_two: 2\n\
                   Apikey: k";
    let cases = [
        ("$(headers.x_one)", "first"),
        ("$(headers[\"X-One\"])", "first"),
        ("$( headers . Authorization )!", "Bearer abc!"),
        ("$(headers.x_two)", "2"),
        ("$(headers.nothing)", ""),
        ("a-$(query_params.q)-$(query_params['n'])", "a-a b-1"),
        ("$(query_params.flag)", "true"),
        ("$(query_params.none or headers.x_one or 'z')", "first"),
        ("$(query_params.none or 'it\\'s')", "it's"),
        ("$(nil or false)", ""),
        ("$(not nil)", "true"),
        ("$('a' and 'b' or 'c')", "b"),
        ("$(nil and 'b' or 'c')", "c"),
        ("$('' or 'c')", ""),
        ("$(headers.authorization:sub(1, 6))", "Bearer"),
        ("$(headers.authorization:sub(8))", "abc"),
        ("$(headers.authorization:sub(-3, -2))", "ab"),
        ("$(headers.authorization:sub(20))", ""),
        ("$(headers.authorization:sub(5, 2))", ""),
        ("$(headers.nothing:sub(1, 2))", ""),
        ("$(headers.x_one:upper():lower() .. '-' .. headers.nothing)", "first-"),
        ("$(headers.x_one == 'first')", "true"),
        ("$(headers.x_one ~= 'first')", ""),
        ("$(headers.x_one == \"first\" and 'yes')", "yes"),
        ("$(headers.nothing == nil and 'none')", "none"),
        ("$(query_params.flag == 'true' and 'text' or 'boolean')", "boolean"),
        ("$(uri_captures.id or uri_captures[1] or 'none')", "none"),
        ("$(consumer.username or 'anyone')", "anyone"),
        ("$('$(escaped)')", "$(escaped)"),
        ("$(')')", ")"),
        ("$((headers.orange or headers.x_one))s", "firsts"),
        ("$(headers.order or 'x')", "x"),
    ];
    for (template, expected) in cases {
        assert_eq!(render(template, request), expected, "{template}");
    }
}

#[test]
fn an_expression_of_supabase_chooses_who_is_authorized() {
    let template = "$((headers.authorization ~= nil and headers.authorization:sub(1, 10) ~= 'Bearer sb_' and \
                    headers.authorization) or (headers.apikey == 'sb_secret' and 'Bearer service') or \
                    (headers.apikey == 'sb_publishable' and 'Bearer anon') or headers.apikey)";
    let cases = [
        ("GET /\nAuthorization: Bearer user\napikey: sb_secret", "Bearer user"),
        ("GET /\nAuthorization: Bearer sb_secret\napikey: sb_secret", "Bearer service"),
        ("GET /\napikey: sb_publishable", "Bearer anon"),
        ("GET /\napikey: legacy", "legacy"),
        ("GET /", ""),
    ];
    for (request, expected) in cases {
        assert_eq!(render(template, request), expected, "{request}");
    }
}

#[test]
fn invalid_templates_are_refused_with_a_reason() {
    let cases = [
        ("$(os.getenv('HOME'))", "`os`"),
        ("$((function() return 1 end)())", "a function"),
        ("$(shared.x)", "`shared`, which nothing sets here"),
        ("$(headers.x-one)", "[\"x-…\"]"),
        ("$(headers)", "`)` where it cannot stand"),
        ("$(headers.a:gsub('a', 'b'))", "the method `gsub`"),
        ("$(headers.a", "no closing parenthesis"),
        ("$()", "`)` where it cannot stand"),
        ("$(headers.a + 1)", "`+` where it cannot stand"),
        ("$(headers['a)", "closing quote"),
        ("$('\\065')", "an escape"),
        ("$(consumer.tags)", "id, custom_id and username"),
        ("$(headers.a:sub(x))", "where it cannot stand"),
        ("$(1)", "`1` where it cannot stand"),
    ];
    for (template, expected) in cases {
        let refusal = Template::parse(template).expect_err(template);
        assert!(refusal.contains(expected) && refusal.contains("query_params"), "{template}: {refusal}");
    }
    for endless in [
        format!("$({}", "(".repeat(100_000)),
        format!("$('a'{})", " or 'a'".repeat(100_000)),
        format!("$('a'{})", ":lower()".repeat(100_000)),
    ] {
        assert!(Template::parse(&endless).expect_err("endless").contains("more than 256 terms"));
    }
    assert_eq!(Template::parse("costs $5 (or so)").unwrap(), None);
}

#[test]
fn equal_templates_are_rendered_once() {
    let mut values = super::Values::default();
    let mut prepare = |text| values.prepare(text).unwrap();
    let of = [prepare("$(headers.a)"), prepare("x$(headers.a)"), prepare("$(headers[\"a\"])")];
    assert!(matches!(of, [super::Value::Rendered(0), super::Value::Rendered(1), super::Value::Rendered(0)]));
}

#[test]
fn only_what_changes_bodies_asks_for_them() {
    let wants = |config| {
        Gateway::new(PLUGINS).plugin("request-transformer", config).unwrap().wants_body() == WantsBody::Yes
    };
    assert!(!wants(json!({ "add": { "headers": ["a:b"], "querystring": ["a:b"] } })));
    assert!(wants(json!({ "remove": { "body": ["a"] } })));
    assert!(wants(json!({ "http_method": "GET" })) && !wants(json!({ "http_method": "PUT" })));
}

proptest::proptest! {
    #[test]
    fn whatever_a_template_is_it_is_rendered_or_refused(
        text in "(\\$\\(|headers|query_params|\\.a|\\[|\\]|'|\"|a|or|and|not|==|\\.\\.|:sub\\(|:lower\\(\\)|-?[0-9]{1,20}|,| |\\)|\\\\|é){0,24}"
    ) {
        if let Ok(None) = Template::parse(&text) {
            proptest::prop_assert!(!text.contains("$("));
        }
        if let Ok(Some(template)) = Template::parse(&text) {
            template.render(&Gateway::new(PLUGINS).exchange("GET /?a=%ff\nA: b"), &mut Vec::new());
        }
    }
}
