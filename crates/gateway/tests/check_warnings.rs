//! What cannot work and breaks no rule: `weir check` and the start say it, with the place and the fix.
use crate::harness::{Gateway, weir};

/// What `weir check` says of a file of this name, and whether it accepts it.
fn check(name: &str, text: &str) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(name), text).unwrap();
    let output = weir().current_dir(folder.path()).args(["check", name]).output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

/// Whether a file is accepted with these warnings, in their order, and no others.
fn is_warned_of(name: &str, text: &str, expected: &[&str]) {
    let (good, said) = check(name, text);
    assert!(good, "{said}");
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{said}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(&format!("warning: {name}:{expected}")), "{expected}: {said}");
    }
    assert!(!said.contains("hunter2"), "{said}");
}

const SHOP: &str = "_format_version: '3.0'
services:
- name: shop
  url: http://a.test
  routes:
  - {name: shop, paths: [/shop]}
";

#[test]
fn a_misspelt_reference_to_a_secret_is_found() {
    let used =
        "so that it is no reference, and the text itself is used as the secret; write `{vault://VAULT/NAME}`";
    let with = |secret: &str| {
        let guest =
            "consumers: [{username: guest}]\nplugins:\n- {name: key-auth, config: {anonymous: guest}}\n";
        format!("{SHOP}{guest}- name: session\n  config:\n    secret: '{secret}'\n")
    };
    for (secret, what) in [
        ("{vault://env/hunter2-hunter2", "the closing `}` is missing"),
        (" {vault://env/hunter2-hunter2}", "spaces surround the reference"),
        ("{vault:/env/hunter2-hunter2}", "`{vault://` is misspelt"),
    ] {
        let expected = format!("12:13: plugins[1].config.secret: {what}, {used}");
        is_warned_of("kong.yml", &with(secret), &[&expected]);
    }
    is_warned_of("kong.yml", &with("{vault://env/NAME}"), &[]);
}

#[test]
fn code_in_the_sandbox_that_uses_what_is_hidden_is_found() {
    let text = "_format_version: '3.0'\nplugins:\n- name: pre-function\n  config:\n    access:\n    - return\n    - |\n      \
                local name = 'a'\n      kong.db.consumers:select_by_username(name)\n";
    let expected = "plugins[0].config.access[1]: line 2: the code fails where it uses kong.db, which the sandbox hides: \
                    move it to a plugin on disk, or set `untrusted_lua=on`";
    is_warned_of("kong.yml", text, &[&format!("8:7: {expected}")]);
    for (setting, value) in [("UNTRUSTED_LUA", "on"), ("UNTRUSTED_LUA_SANDBOX_ENVIRONMENT", "kong.db")] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kong.yml");
        std::fs::write(&file, text).unwrap();
        let output = weir().arg("check").arg(&file).env(format!("WEIR_{setting}"), value).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && !said.contains("kong.db"), "{setting}: {said}");
    }
    let log = Gateway::start(text).log();
    assert!(log.contains(expected), "{log}");
}

#[test]
fn a_session_needs_a_secret_and_a_plugin_that_accepts_it() {
    let text = format!("{SHOP}plugins:\n- name: session\n  service: shop\n");
    is_warned_of(
        "kong.yml",
        &text,
        &[
            "8:3: plugins[0]: no request uses a session, because no authentication plugin of the same requests has `anonymous`: ",
            "8:3: plugins[0].config.secret: is made up each time that the file is read, because it is left out: ",
        ],
    );
    let good = format!(
        "{text}  config: {{secret: 0123456789abcdef}}\n- {{name: key-auth, service: shop, config: {{anonymous: guest}}}}\nconsumers: [{{username: guest}}]\n"
    );
    is_warned_of("kong.yml", &good, &[]);
    // The start says the same.
    let log = Gateway::start(&text).log();
    assert!(log.contains("plugins[0].config.secret: is made up each time"), "{log}");
}

#[test]
fn a_login_needs_a_route_for_its_end() {
    let text = |path: &str| {
        format!(
            "{SHOP}  plugins:\n  - name: openid-connect\n    config: {{client_id: a, client_secret: hunter2, discovery: 'https://idp.test/x', \
             redirect_uri: 'https://shop.test{path}', session: {{secret: hunter2hunter2hunter2}}}}\n"
        )
    };
    is_warned_of("kong.yml", &text("/shop/callback"), &[]);
    is_warned_of(
        "kong.yml",
        &text("/callback"),
        &[
            "9:99: services[0].plugins[0].config.redirect_uri: no login can end, because no route of this plugin receives `GET /callback` at host `shop.test`: ",
        ],
    );
}

const PROTO: &str = "syntax = \"proto3\"; package a; message M {} service S { rpc Do (M) returns (M) {} }";

#[test]
fn calls_of_grpc_need_a_service_that_gets_them() {
    let text = |protocol: &str, route: &str| {
        format!(
            "_format_version: '3.0'\nservices:\n- name: s\n  host: a.test\n  protocol: {protocol}\n  routes:\n  - name: r\n    {route}\n    plugins:\n    \
             - name: grpc-transcode\n      config: {{proto: '{PROTO}', service: a.S, method: Do}}\n"
        )
    };
    let http = "paths: [/]";
    is_warned_of("kong.yml", &text("grpc", http), &[]);
    let of_service = "10:7: services[0].routes[0].plugins[0]: no service of grpc-transcode gets gRPC, so that calls fail; write `grpc` or `grpcs` ";
    is_warned_of("kong.yml", &text("http", http), &[of_service]);
    let of_route = "10:7: services[0].routes[0].plugins[0]: no route of grpc-transcode takes requests that are not gRPC, ";
    is_warned_of(
        "kong.yml",
        &text("grpc", "{paths: [/], protocols: [grpc]}")
            .replace("{paths: [/], protocols: [grpc]}", "paths: [/]\n    protocols: [grpc]"),
        &[&of_route.replace("10:7", "11:7")],
    );
}

#[test]
fn a_service_whose_upstream_has_no_targets_is_found() {
    let text = |targets: &str| {
        format!(
            "_format_version: '3.0'\nservices:\n- name: shop\n  host: u.test\nupstreams:\n- name: u.test\n{targets}"
        )
    };
    is_warned_of("kong.yml", &text("  targets: [{target: 'a.test:80'}]\n"), &[]);
    let none = "4:9: services[0].host: the upstream `u.test` has no targets, so that no request gets there; add one with ";
    is_warned_of("kong.yml", &text(""), &[none]);
    let zero = "4:9: services[0].host: all targets of the upstream `u.test` have the weight 0, so that no request gets there; ";
    is_warned_of("kong.yml", &text("  targets: [{target: 'a.test:80', weight: 0}]\n"), &[zero]);
}

#[test]
fn a_limit_of_a_service_whose_upstream_has_its_own_is_found() {
    let text = |tags: &str| {
        format!(
            "_format_version: '3.0'\nservices:\n- name: shop\n  host: u.test\n  tags: [{tags}]\nupstreams:\n- name: u.test\n  \
             targets: [{{target: 'a.test:80'}}]\n"
        )
    };
    is_warned_of("kong.yml", &text("weir-upstream-http2"), &[]);
    let found = "5:9: services[0].tags: the tag `weir-max-requests:3` has no effect, because the service leads to the upstream `u.test`; ";
    is_warned_of("kong.yml", &text("weir-upstream-http2, 'weir-max-requests:3'"), &[found]);
}

#[test]
fn mistakes_of_plugins_in_a_file_of_apisix_are_at_its_own_fields() {
    let text = format!(
        "protos:
  - id: p
    content: '{PROTO}'
upstreams:
  - {{id: u, nodes: {{\"a.test:80\": 1}}}}
plugin_configs:
  - id: shared
    plugins:
      openwhisk: {{api_host: 'http://a.test', service_token: 'a:b', namespace: n, action: f}}
routes:
  - id: 1
    uri: /a
    upstream_id: u
    plugin_config_id: shared
    plugins:
      grpc-transcode:
        proto_id: p
        service: a.S
        method: Do
#END
"
    );
    let warning = "16:7: routes[0].plugins.grpc-transcode: no service of grpc-transcode gets gRPC, so that calls fail; ";
    is_warned_of("apisix.yaml", &text, &[warning]);
    let (good, said) = check("apisix.yaml", &text.replace("method: Do", "method: Undo"));
    assert!(
        !good
            && said.contains(
                "apisix.yaml:19:17: routes[0].plugins.grpc-transcode.method: a.S has no method Undo"
            ),
        "{said}"
    );
    let shared = text.replace("api_host: 'http://a.test'", "api_host: 'http://a.test/whisk'");
    let of_path = "9:29: plugin_configs[0].plugins.openwhisk.api_host: the path `/whisk` comes before /api/v1 in requests; ";
    let (good, said) = check("apisix.yaml", &shared);
    assert!(good && said.contains(of_path), "{said}");
    let (good, said) = check("apisix.yaml", &text.replace("service_token: 'a:b'", "service_token: hunter2"));
    assert!(
        good && said.contains(".plugins.openwhisk.service_token: has no colon, so that OpenWhisk refuses it"),
        "{said}"
    );
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn warnings_are_shown_beside_errors() {
    let check_both = |name: &str, text: &str, expected: &[&str]| {
        let (good, said) = check(name, text);
        assert!(!good, "{said}");
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), expected.len(), "{said}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(expected), "{expected}: {said}");
        }
    };
    let services = "_format_version: '3.0'
services:
- name: shop
  host: u.test
upstreams:
- name: u.test
";
    let without_targets = "warning: kong.yml:4:9: services[0].host: the upstream `u.test` has no targets, ";
    // Of the compiler, and across entities.
    let method = format!(
        "plugins:\n- name: grpc-transcode\n  config: {{proto: '{PROTO}', service: a.S, method: Undo}}\n"
    );
    let no_method = "kong.yml:9:127: plugins[0].config.method: a.S has no method Undo";
    check_both("kong.yml", &format!("{services}{method}"), &[no_method, without_targets]);
    let twice = "consumers: [{username: a}, {username: a}]\n";
    check_both(
        "kong.yml",
        &format!("{services}{twice}"),
        &["kong.yml:7:39: consumers[1].username: ", without_targets],
    );
    // The targets may be what cannot be read.
    let session = "plugins:\n- {name: session, config: {secret: '{vault:/env/a}'}}\n- {name: key-auth, config: {anonymous: guest}}\nconsumers: [{username: guest}]\n";
    check_both(
        "kong.yml",
        &format!("{services}  targts: [{{target: 'a.test:80'}}]\n{session}"),
        &[
            "kong.yml:7:3: upstreams[0]: unknown field `targts`",
            "warning: kong.yml:9:36: plugins[0].config.secret: can be guessed, ",
        ],
    );
    let ignored = "upstreams:\n  - {id: 1, retry_timeout: 1, nodes: {'a.test:80': 1}}\nplanets: []\n#END\n";
    check_both(
        "apisix.yaml",
        ignored,
        &["apisix.yaml:3:1: `planets` is not available here", "warning: apisix.yaml:2:5: upstreams[0]: "],
    );
}

#[test]
fn an_upstream_that_a_plugin_names_is_used() {
    let upstreams = "upstreams:\n- {name: v2, targets: [{target: a.test:80}]}\n";
    let split =
        "{name: traffic-split, config: {rules: [{weighted_upstreams: [{upstream: v2}, {weight: 1}]}]}}";
    let code = "{name: pre-function, config: {access: [\"kong.service.set_upstream('v2')\"]}}";
    for plugin in [split, code] {
        is_warned_of("kong.yml", &format!("{SHOP}plugins:\n- {plugin}\n{upstreams}"), &[]);
    }
    let other = split.replace("v2", "v1");
    let text = format!("{SHOP}plugins:\n- {other}\n{upstreams}");
    let unknown = "there is no upstream `v1`; did you mean `v2`?; its requests go to the service";
    let (good, said) = check("kong.yml", &text);
    assert!(good && said.contains(unknown) && said.contains("no service uses the upstream `v2`"), "{said}");
}

#[test]
fn what_is_lost_with_the_process_is_named() {
    let memory = "in this node's memory, because it has no database";
    for (storage, kept) in [("shm", "certificates"), ("kong", "account, challenges and certificates")] {
        let acme =
            format!("{{account_email: a@b.test, tos_accepted: true, domains: [b.test], storage: {storage}}}");
        let text = format!("{SHOP}plugins:\n- {{name: acme, config: {acme}}}\n");
        let (good, said) = check("kong.yml", &text);
        let expected = format!("warning: kong.yml: {kept} of acme are {memory}");
        assert!(good && said.starts_with(&expected), "{said}");
        assert!(!said.contains("tokens") && !said.contains("sessions"), "{said}");
    }
}
