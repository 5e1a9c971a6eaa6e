//! The variables of a request, compared as routes do.
use crate::tests::{Request, route};
use crate::{Router, check_vars};
use serde_json::{Value as Json, json};
use weir_model::entity::Route;

/// Whether a route with these `vars` takes the request.
fn takes(vars: &Json, request: &Request) -> bool {
    let route = Route { paths: Some(vec!["/".into()]), vars: Some(vars.clone()), ..route(1) };
    let router = Router::build(&[&route]).expect("the route compiles");
    request.query(|query| router.find(query).is_some())
}

#[test]
fn routes_look_at_what_a_request_has_before_it_has_a_route() {
    let headers = [("x-role", vec!["admin"]), ("cookie", vec!["a=1; bc=2", "b=3"])];
    let headers = headers
        .map(|(name, values)| (name.to_owned(), values.into_iter().map(str::to_owned).collect::<Vec<_>>()));
    let request = Request {
        method: "PUT".into(),
        host: "Shop.test:81".into(),
        path: "/a".into(),
        query: "n=10&name=%6Ason&n=11".into(),
        source: ([192, 0, 2, 9], 40_001).into(),
        headers: headers.into(),
        ..Request::default()
    };
    for (vars, expected) in [
        (json!([]), true),
        (json!([["arg_name", "==", "json"]]), true),
        (json!([["arg_n", "==", 10]]), true),
        (json!([["arg_n", "==", 11]]), false),
        (json!([["arg_none", "==", null]]), true),
        (json!([["http_x_role", "~~", "^adm"], ["http_none", "~=", "x"]]), true),
        (json!([["http_x_role", "==", "Admin"]]), false),
        (json!([["cookie_b", "==", "3"], ["cookie_a", "==", "1"]]), true),
        (json!([["cookie_c", "==", null]]), true),
        (json!([["remote_addr", "ipmatch", ["192.0.2.0/28"]]]), true),
        (json!([["remote_addr", "!", "ipmatch", ["192.0.2.0/28"]]]), false),
        (json!([["remote_port", ">", 40_000], ["server_port", "<", 1]]), false),
        (json!(["!OR", ["host", "==", "other.test"], ["scheme", "==", "https"]]), true),
        (json!([["host", "==", "shop.test"], ["request_method", "in", ["PUT"]], ["uri", "==", "/a"]]), true),
        (json!([["request_uri", "==", "/a?n=10&name=%6Ason&n=11"], ["is_args", "==", "?"]]), true),
        (json!([["args", "~~", "^n=10&"]]), true),
    ] {
        assert_eq!(takes(&vars, &request), expected, "{vars}");
    }
}

#[test]
fn what_a_route_cannot_look_at_is_an_error() {
    for (vars, expected) in [
        (json!([["consumer_name", "==", "jack"]]), "routes cannot look at the variable `consumer_name`"),
        (json!([["arg_", "==", "jack"]]), "routes cannot look at the variable `arg_`"),
        (json!([["arg_a", "=", "jack"]]), "invalid operator '='"),
        (json!({}), "expected a list"),
    ] {
        let error = check_vars(&vars).expect_err("it is refused");
        assert!(error.contains(expected), "{vars}: {error}");
        let route = Route { paths: Some(vec!["/".into()]), vars: Some(vars), ..route(1) };
        let errors = Router::build(&[&route]).expect_err("it does not compile");
        assert!(errors[0].message.starts_with("vars: "), "{}", errors[0]);
    }
}
