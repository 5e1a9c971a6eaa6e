//! `weir check --against`: what of a configuration works as in another gateway.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, closed_port, weir};
use std::process::Output;

const FILE: &str = "_format_version: '3.0'
services:
- name: s
  url: http://127.0.0.1:1
  retries: 3
  routes:
  - name: r
    paths: [/a]
    plugins:
    - name: jwt
- name: t
  url: http://127.0.0.1:1
  retries: 4
upstreams:
- name: u
  healthchecks: {active: {type: grpc}}
";

/// Checks a file of this name against a gateway.
fn check(name: &str, text: &str, against: &str, variables: &[(&str, &str)]) -> (Output, String) {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join(name), text).unwrap();
    let mut command = weir();
    command.current_dir(folder.path()).envs(variables.iter().copied());
    let output = command.args(["check", "--against", against, name]).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (output, text)
}

#[test]
fn each_difference_is_told_once_with_its_first_place() {
    let (output, text) = check("kong.yml", FILE, "kong", &[]);
    let expected = [
        "kong.yml: good",
        "kong.yml:",
        "     14  same",
        "      0  same, in other words",
        "      2  different on purpose",
        "kong.yml:10:7: different on purpose: plugins.jwt: a token with `crit`",
        "kong.yml:16:33: different on purpose: upstreams.healthchecks.active.type: targets are probed as by tcp; there: the",
    ];
    for line in expected {
        assert!(text.lines().any(|told| told.starts_with(line)), "{line}:\n{text}");
    }
    assert!(output.status.success() && text.contains("      0  not yet\n"), "{text}");
}

#[test]
fn plugins_that_kong_does_not_have_are_only_in_weir() {
    let file = "_format_version: '3.0'\nplugins:\n- name: limit-count\n  config: {count: 1, time_window: 60, rejected_code: 429}\n\
                - name: cors\nroutes:\n- paths: [/a]\n  plugins:\n  - name: limit-count\n    config: {count: 2, time_window: 60}\n";
    let (output, text) = check("kong.yml", file, "kong", &[]);
    assert!(output.status.success(), "{text}");
    // cors, its name, the route and its paths.
    assert!(text.contains("      4  same\n") && text.contains("      2  only in Weir\n"), "{text}");
    assert!(text.contains("kong.yml:3:3: only in Weir: plugins.limit-count (2 times)\n"), "{text}");
}

#[test]
fn plugins_of_another_edition_of_kong_are_named_as_such() {
    let config = "{client_id: a, client_secret: b, discovery: 'https://a.test', bearer_only: true, session: {secret: a-long-random-text}}";
    let file = format!(
        "_format_version: '3.0'\nplugins:\n- {{name: openid-connect, config: {config}}}\n- {{name: mocking, config: {{response_example: a}}}}\n"
    );
    let (_, text) = check("kong.yml", &file, "kong", &[]);
    for (line, name) in [(3, "openid-connect"), (4, "mocking")] {
        let expected = format!(
            "kong.yml:{line}:3: only in Weir: plugins.{name}; Kong Enterprise has a plugin of this name with other fields"
        );
        assert!(text.lines().any(|printed| printed == expected), "{expected}:\n{text}");
    }
}

#[test]
fn what_is_missing_fails_the_check() {
    let file = "_format_version: '3.0'\nplugins:\n- name: acme\n  config: {account_email: a@b.test, storage: consul}\n";
    let (output, text) = check("kong.yml", file, "kong", &[]);
    assert!(!output.status.success());
    assert!(text.contains("not yet: plugins.acme.config.storage: the configuration is refused"), "{text}");
    let good = "_format_version: '3.0'\nservices:\n- name: s\n  host: a.test\n";
    let (output, text) = check("kong.yml", good, "kong", &[]);
    assert!(output.status.success() && text.contains("      3  same\n"), "{text}");
}

#[test]
fn each_missing_plugin_is_counted_and_named_whether_kong_has_it_or_not() {
    let file = "_format_version: '3.0'\nplugins:\n- name: saml\n  config: {assertion_consumer_path: /a}\n- name: jwt-signer\n\
                - name: my-own\n- name: \"my\\e[2J.own\"\n- name: cors\nroutes:\n- paths: [/a]\n  plugins:\n  - name: my-own\n";
    let (output, text) = check("kong.yml", file, "kong", &[]);
    assert!(!output.status.success());
    // Of the others, cors, its name, the route and its paths.
    assert!(text.contains("      4  same\n") && text.contains("      5  not yet\n"), "{text}");
    let refused = "the file is refused, because Weir does not have this plugin";
    for line in [
        format!("kong.yml:3:3: not yet: plugins.saml: {refused}"),
        format!("kong.yml:5:3: not yet: plugins.jwt-signer: {refused}"),
        format!("kong.yml:6:3: not yet: plugins.my-own (2 times): {refused}"),
        format!("kong.yml:7:3: not yet: plugins.my\\u{{1b}}[2J.own: {refused}"),
    ] {
        assert!(text.lines().any(|printed| printed == line), "{line}:\n{text}");
    }
    let file = "routes:\n- uri: /a\n  plugins:\n    cors: {}\n    my-own: {a: 1}\n#END\n";
    let (_, text) = check("apisix.yaml", file, "apisix", &[]);
    assert!(
        text.contains("      1  not yet\n") && text.contains("not yet: plugins.my-own: refused"),
        "{text}"
    );
}

#[test]
fn plugins_of_one_row_have_lines_of_their_own() {
    let file = "_format_version: '3.0'\nplugins:\n- {name: rate-limiting, config: {minute: 5}}\n\
                - {name: response-ratelimiting, config: {limits: {a: {minute: 5}}}}\n";
    let (_, text) = check("kong.yml", file, "kong", &[]);
    for line in [
        "kong.yml:3:3: different on purpose: plugins.rate-limiting: ",
        "kong.yml:4:3: different on purpose: plugins.response-ratelimiting: ",
    ] {
        assert!(text.lines().any(|printed| printed.starts_with(line)), "{line}:\n{text}");
    }
}

#[test]
fn settings_of_the_environment_are_judged() {
    let variables = [("KONG_LUA_SOCKET_POOL_SIZE", "3"), ("KONG_PROXY_LISTEN", "127.0.0.1:0")];
    let (output, text) = check("kong.yml", "_format_version: '3.0'\n", "kong", &variables);
    assert!(!output.status.success());
    assert!(text.contains("      1  same\n"), "{text}");
    assert!(
        text.contains(
            "\nKONG_LUA_SOCKET_POOL_SIZE: not yet: settings.lua_socket_pool_size: ignored with a warning"
        ),
        "{text}"
    );
}

#[test]
fn the_logs_of_a_usual_compose_file_are_no_reason_to_fail() {
    let logs = ["proxy", "admin"].map(|api| {
        let name = |kind: &str| format!("KONG_{}_{kind}_LOG", api.to_uppercase());
        [(name("ACCESS"), "/dev/stdout"), (name("ERROR"), "/dev/stderr")]
    });
    let variables: Vec<_> = logs.as_flattened().iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let (output, text) = check("kong.yml", "_format_version: '3.0'\n", "kong", &variables);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("KONG_ADMIN_ERROR_LOG: different on purpose"), "{text}");
}

#[test]
fn variables_that_kubernetes_sets_for_services_are_no_settings() {
    let of_service = [
        ("SERVICE_HOST", "10.96.0.9"),
        ("SERVICE_PORT", "8000"),
        ("SERVICE_PORT_PROXY", "8000"),
        ("PORT", "tcp://10.96.0.9:8000"),
        ("PORT_8000_TCP", "tcp://10.96.0.9:8000"),
        ("PORT_8000_TCP_ADDR", "10.96.0.9"),
        ("PROXY_PORT_80_TCP_PROTO", "tcp"),
    ];
    let named = |prefix: &str| of_service.map(|(name, value)| (format!("{prefix}_{name}"), value));
    let variables = [named("KONG"), named("WEIR")].concat();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let (output, text) = check("kong.yml", "_format_version: '3.0'\n", "kong", &variables);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(text.contains("      0  same\n") && text.contains("      0  not yet\n"), "{text}");
    // A node with them starts, and warns of none.
    let mut gateway = Gateway::empty();
    for (name, value) in &variables {
        gateway = gateway.env(name, value);
    }
    let gateway = gateway.start();
    assert!(!gateway.log().contains("SERVICE_HOST"), "{}", gateway.log());
}

#[test]
fn a_setting_that_is_refused_says_so() {
    let (output, text) =
        check("kong.yml", "_format_version: '3.0'\n", "kong", &[("KONG_NGINX_PROXY_ALLOW", "1")]);
    let line = "\nwithout effect: KONG_NGINX_PROXY_ALLOW: settings.nginx_proxy_allow is refused: this directive protects";
    assert!(!output.status.success() && text.contains(line), "{text}");
}

#[test]
fn settings_of_kong_conf_have_their_lines() {
    let file = "# a comment\nproxy_listen = 127.0.0.1:0\nnginx_http_gzip = on\nno_setting = 1\nlua_socket_pool_size = 3\n";
    let (output, text) = check("kong.conf", file, "kong", &[]);
    assert!(!output.status.success());
    for line in [
        "      1  same",
        "kong.conf:5: not yet: settings.lua_socket_pool_size: ignored",
        "without effect: kong.conf:3: settings.nginx_http_gzip ",
        "without effect: kong.conf:4: settings.no_setting has no meaning here",
    ] {
        assert!(text.lines().any(|printed| printed.starts_with(line)), "{line}:\n{text}");
    }
}

#[test]
fn a_plugin_that_is_missing_is_found_in_the_setting() {
    let variables = [("KONG_PLUGINS", "bundled, oidc,acl")];
    let (output, text) = check("kong.yml", "_format_version: '3.0'\n", "kong", &variables);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &text;
    assert!(said.contains("oidc plugin is enabled but not installed"), "{said}");
    assert!(said.contains("no file './kong/plugins/oidc/handler.lua'"), "{said}");
    let (output, text) =
        check("kong.yml", "_format_version: '3.0'\n", "kong", &[("KONG_PLUGINS", "bundled,acl")]);
    assert!(output.status.success(), "{text}");
}

#[test]
fn a_port_that_no_listener_has_is_mapped_with_a_warning() {
    let folder = tempfile::TempDir::new().unwrap();
    let run = |maps: &str| {
        let text = format!("proxy_listen = 127.0.0.1:8000, 127.0.0.1:8443 ssl\nport_maps = {maps}\n");
        std::fs::write(folder.path().join("kong.conf"), text).unwrap();
        let output = weir().current_dir(folder.path()).args(["check", "kong.conf"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let output = run("80:8000, 443:9443");
    assert_eq!(output.matches("port_maps: no listener").count(), 1, "{output}");
    assert!(output.contains("has the port of 443:9443, which has no effect"), "{output}");
    assert!(!run("80:8000, 443:8443").contains("port_maps"));
}

#[test]
fn a_running_kong_is_asked_page_by_page() {
    let gateway = Gateway::empty().start();
    for (path, body) in [
        ("/services", r#"{"name": "s", "host": "a.test"}"#),
        ("/services/s/routes", r#"{"name": "r", "paths": ["/a"]}"#),
        ("/services/s/plugins", r#"{"name": "jwt", "instance_name": "tokens"}"#),
        ("/upstreams", r#"{"name": "u"}"#),
        ("/upstreams/u/targets", r#"{"target": "127.0.0.1:1"}"#),
    ] {
        assert_eq!(gateway.ask_admin("POST", path, body).status, 201, "{path}");
    }
    let url = format!("http://{}", gateway.admin_addresses()[0]);
    let output = weir().args(["check", "--against", "kong", &url]).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(text.starts_with(&format!("{url}: good\n{url}:\n")), "{text}");
    assert!(text.contains("\nplugin tokens: different on purpose: plugins.jwt: "), "{text}");
    let url = format!("http://{}", gateway.proxy());
    let output = weir().args(["check", &url]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("no Admin API answers here"), "{text}");
    let url = format!("http://{}", closed_port());
    let output = weir().args(["check", &url]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("/: ") && text.contains("name the Admin API"), "{text}");
}

#[test]
fn a_file_of_apisix_is_checked_by_its_own_catalogue() {
    let file = "routes:\n- id: 1\n  uri: /a\n  plugins:\n    limit-count: {count: 1, time_window: 60}\n  upstream:\n    \
                nodes: {'127.0.0.1:1': 1}\n    type: roundrobin\n#END\n";
    let (output, text) = check("apisix.yaml", file, "apisix", &[]);
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("apisix.yaml:5:18: different on purpose: plugins.limit-count: "), "{text}");
}
