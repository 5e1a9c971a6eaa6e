//! Templates: their values, and which are invalid.

use super::template::Template;
use crate::PLUGINS;
use serde_json::json;
use weir_plugin::testing::{Gateway, Outcome};
use weir_plugin::{Json, Scripts, WantsBody};

fn render(template: &str, request: &str) -> String {
    let exchange = Gateway::new(PLUGINS).exchange(request);
    let mut out = Vec::new();
    let template = Template::parse(template).unwrap().expect("a template");
    assert_eq!(template.code().count(), 0, "needs Lua");
    template.render(&exchange, std::iter::empty(), &mut out);
    String::from_utf8(out).unwrap()
}

/// The request that goes to the upstream, with Lua.
fn send(config: Json, request: &str) -> Outcome {
    <dyn Scripts>::install(&weir_guests::LuaScripts);
    let gateway = Gateway::new(PLUGINS);
    let hooks = gateway.plugin("request-transformer", config).unwrap();
    gateway.send(&[&*hooks], request)
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
fn other_expressions_are_run_by_lua() {
    let request = "GET /p?n=4&q=a&q=b\nX-One: first\nX-One: second\nX-Two: a,b";
    let cases = [
        ("$(headers['x-two']:gsub(',', '+'))", "a+b"),
        ("$(query_params.n * 2 + 1)", "9"),
        ("$((function() return 'called' end)())!", "called!"),
        ("$(shared.user or 'anyone')", "anyone"),
        ("$(type(headers.x_one))-$(headers.X_One[2])", "table-second"),
        ("$(tostring(uri_captures.id))", "nil"),
        ("$(#query_params.q)", "2"),
        ("$(consumer.username == nil)", "true"),
        ("$(1 > 2)", ""),
        ("$(kong)$(ngx)$(os and os.getenv)", ""),
        ("$(headers.x_two)$(headers.x_two:len())", "a,b3"),
    ];
    for (template, expected) in cases {
        let outcome = send(json!({ "add": { "headers": [format!("x-out:<{template}>")] } }), request);
        assert_eq!(outcome.upstream_header("x-out"), Some(&*format!("<{expected}>")), "{template}");
    }
}

#[test]
fn a_template_that_fails_in_lua_is_500() {
    for template in ["$(nothing.at.all)", "$(('x'):rep(1e10))", "$((function() while true do end end)())"] {
        let outcome = send(json!({ "add": { "querystring": [format!("a:{template}")] } }), "GET /");
        assert_eq!(outcome.status(), 500, "{template}");
        assert!(outcome.answer.unwrap().contains("An unexpected error occurred"));
    }
}

#[test]
fn code_for_bodies_runs_where_there_is_one_to_change() {
    let config = json!({ "add": { "body": ["name:$(headers.name:gsub('a', 'b'))"] } });
    assert_eq!(send(config.clone(), "POST /\n\ntext").status(), 200);
    let json = "Content-Type: application/json";
    assert_eq!(send(config.clone(), &format!("POST /\n{json}\n\n{{}}")).status(), 500);
    let changed = send(config, &format!("POST /\n{json}\nName: aa\n\n{{}}"));
    assert_eq!(changed.exchange.body(), Some(&br#"{"name":"bb"}"#[..]));
}

#[test]
fn a_template_in_lua_changes_nothing_of_the_request() {
    for template in ["$((function() x = 1 end)())", "$((function() headers = 1 end)())"] {
        let outcome = send(json!({ "add": { "headers": [format!("x-out:{template}")] } }), "GET /");
        assert_eq!(outcome.status(), 500, "{template}");
    }
}

#[test]
fn invalid_templates_are_refused_with_a_reason() {
    <dyn Scripts>::install(&weir_guests::LuaScripts);
    let cases = [
        ("$(headers.x-one)", "write names with hyphens as [\"x-one\"]"),
        ("$(headers.a", "`$(` without a closing parenthesis"),
        ("$(headers['a)", "Error parsing function: "),
        ("$(headers.a +)", ":1: unexpected symbol near '<eof>'"),
        ("$(local x = 1)", "unexpected symbol near 'local'"),
    ];
    for (template, expected) in cases {
        let refusal = Template::parse(template).expect_err(template);
        assert!(refusal.contains(expected), "{template}: {refusal}");
    }
    let deep = format!("$({}1{})", "(".repeat(100_000), ")".repeat(100_000));
    assert!(Template::parse(&deep).expect_err("deep").contains("too many syntax levels"));
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
            let exchange = Gateway::new(PLUGINS).exchange("GET /?a=%ff\nA: b");
            template.render(&exchange, std::iter::empty(), &mut Vec::new());
        }
    }
}
