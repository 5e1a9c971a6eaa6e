//! Supabase's self-hosted file: it loads as it is, and its requests go where they went and say what they said.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, Message, Upstream, weir};
use std::fs;
use std::net::SocketAddr;

const FILE: &str = include_str!("kong.yml");

const SECRET: &str = "sb_secret_0123456789";
const PUBLISHABLE: &str = "sb_publishable_0123456789";
const CHOICE: &str = "(#.apikey == 'sb_secret_0123456789' and '@service.asymmetric.jwt') or \
     (#.apikey == 'sb_publishable_0123456789' and '@anon.asymmetric.jwt')";

/// What the container fills in: the expressions as its entrypoint builds them where opaque keys are in use.
fn filled_in() -> String {
    let choice = |of: &str, scheme: &str| CHOICE.replace('#', of).replace('@', scheme);
    let user = "(headers.authorization ~= nil and headers.authorization:sub(1, 10) ~= 'Bearer sb_' and \
                headers.authorization)";
    let authorization = format!("$({user} or {} or headers.apikey)", choice("headers", "Bearer "));
    let values = [
        ("$LUA_AUTH_EXPR", authorization),
        ("$LUA_RT_WS_EXPR", format!("$({} or query_params.apikey)", choice("query_params", ""))),
        ("$LUA_FUNCTIONS_EXPR", format!("$({})", choice("headers", ""))),
        ("$SUPABASE_ANON_KEY", "legacy.anon.jwt".to_owned()),
        ("$SUPABASE_PUBLISHABLE_KEY", PUBLISHABLE.to_owned()),
        ("$SUPABASE_SERVICE_KEY", "legacy.service.jwt".to_owned()),
        ("$SUPABASE_SECRET_KEY", SECRET.to_owned()),
        ("$DASHBOARD_USERNAME", "supabase".to_owned()),
        ("$DASHBOARD_PASSWORD", "a password".to_owned()),
    ];
    values.iter().fold(FILE.to_owned(), |file, (name, value)| file.replace(name, value))
}

/// The file with every service at one address: their paths tell them apart.
fn at(upstream: SocketAddr) -> String {
    const HOSTS: [&str; 8] = [
        "auth:9999",
        "rest:3000",
        "realtime-dev.supabase-realtime:4000",
        "storage:5000",
        "functions:9000",
        "analytics:4000",
        "meta:8080",
        "studio:3000",
    ];
    let moved = |file: String, host: &&str| {
        file.replace(&format!("url: http://{host}"), &format!("url: http://{upstream}"))
            .replace(&format!("url: \"http://{host}"), &format!("url: \"http://{upstream}"))
    };
    HOSTS.iter().fold(filled_in(), moved)
}

#[test]
fn the_file_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kong.yml");
    fs::write(&file, filled_in()).unwrap();
    let output = weir().arg("check").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("warning"), "{said}");
}

struct Supabase {
    _upstream: Upstream,
    gateway: Gateway,
}

impl Supabase {
    fn start() -> Self {
        let upstream = Upstream::echoing();
        let gateway = Gateway::start(&at(upstream.address));
        Self { _upstream: upstream, gateway }
    }

    /// The status, and what an upstream was asked, if one was.
    #[track_caller]
    fn ask(&self, target: &str, headers: &str) -> (u16, Asked) {
        let response = self.gateway.get_with(target, headers);
        (response.status, Asked::of(&response))
    }
}

/// What the upstream was asked, or what the gateway answered.
struct Asked(String);

impl Asked {
    fn of(response: &Message) -> Self {
        Self(response.text().to_owned())
    }

    fn target(&self) -> &str {
        self.0.split(' ').nth(1).unwrap_or_default()
    }

    fn header(&self, name: &str) -> Vec<&str> {
        let fields = self.0.lines().filter_map(|line| line.split_once(": "));
        fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }
}

#[test]
fn open_routes_lead_to_their_services() {
    let supabase = Supabase::start();
    for (target, expected) in [
        ("/auth/v1/verify?token=1", "/verify?token=1"),
        ("/auth/v1/callback", "/callback"),
        ("/auth/v1/authorize/x", "/authorize/x"),
        ("/auth/v1/.well-known/jwks.json", "/.well-known/jwks.json"),
        ("/sso/saml/acs", "/sso/saml/acs"),
        ("/sso/saml/metadata", "/sso/saml/metadata"),
        ("/.well-known/oauth-authorization-server", "/.well-known/oauth-authorization-server"),
        ("/storage/v1/object/a.png", "/object/a.png"),
        ("/functions/v1/hello", "/hello"),
        ("/analytics/v1/api/endpoints/query", "/api/endpoints/query"),
    ] {
        let (status, asked) = supabase.ask(target, "");
        assert_eq!((status, asked.target()), (200, expected), "{target}");
    }
}

#[test]
fn keys_are_translated_on_their_way() {
    let supabase = Supabase::start();
    for target in ["/auth/v1/user", "/rest/v1/todos", "/graphql/v1", "/realtime/v1/api/broadcast"] {
        for (headers, expected) in [
            (format!("apikey: {SECRET}\r\n"), "Bearer service.asymmetric.jwt"),
            (format!("apikey: {PUBLISHABLE}\r\n"), "Bearer anon.asymmetric.jwt"),
            (
                format!("apikey: {PUBLISHABLE}\r\nAuthorization: Bearer {PUBLISHABLE}\r\n"),
                "Bearer anon.asymmetric.jwt",
            ),
            (format!("apikey: {PUBLISHABLE}\r\nAuthorization: Bearer user.jwt\r\n"), "Bearer user.jwt"),
            ("apikey: legacy.anon.jwt\r\n".to_owned(), "legacy.anon.jwt"),
        ] {
            let (status, asked) = supabase.ask(target, &headers);
            assert_eq!((status, asked.header("authorization")), (200, vec![expected]), "{target} {headers}");
            assert!(asked.header("x-consumer-groups").is_empty(), "hide_groups_header");
            let profile = if target == "/graphql/v1" { vec!["graphql_public"] } else { vec![] };
            assert_eq!(asked.header("content-profile"), profile, "{target}");
        }
        assert_eq!(supabase.ask(target, "").0, 401, "{target}");
        assert_eq!(supabase.ask(target, "apikey: sb_secret_guessed\r\n").0, 401, "{target}");
    }
}

#[test]
fn realtime_is_told_the_key_of_the_query() {
    let supabase = Supabase::start();
    let (status, asked) = supabase.ask(&format!("/realtime/v1/websocket?apikey={PUBLISHABLE}&vsn=1.0.0"), "");
    assert_eq!((status, asked.header("x-api-key")), (200, vec!["anon.asymmetric.jwt"]));
    assert_eq!(asked.target(), "/socket/websocket?apikey=anon.asymmetric.jwt&vsn=1.0.0");
    let (_, asked) = supabase.ask("/realtime/v1/websocket?apikey=legacy.service.jwt", "");
    assert_eq!(asked.header("x-api-key"), ["legacy.service.jwt"]);
}

#[test]
fn functions_get_a_key_that_no_client_can_forge() {
    let supabase = Supabase::start();
    let forged = format!("sb-api-key: forged\r\napikey: {SECRET}\r\nAuthorization: Bearer user.jwt\r\n");
    let (_, asked) = supabase.ask("/functions/v1/hello", &forged);
    assert_eq!(asked.header("sb-api-key"), ["service.asymmetric.jwt"]);
    assert_eq!(asked.header("authorization"), ["Bearer user.jwt"]);
    let (_, asked) = supabase.ask("/functions/v1/hello", "sb-api-key: forged\r\n");
    assert!(asked.header("sb-api-key").is_empty(), "post-function takes an empty one away");
    let (_, asked) = supabase.ask("/storage/v1/object/a.png", "");
    assert!(asked.header("authorization").is_empty(), "likewise");
}

#[test]
fn some_are_for_admins_and_some_for_nobody() {
    let supabase = Supabase::start();
    let (status, asked) = supabase.ask("/pg/tables", &format!("apikey: {SECRET}\r\n"));
    assert_eq!((status, asked.target()), (200, "/tables"));
    let anonymous = supabase.gateway.get_with("/pg/tables", &format!("apikey: {PUBLISHABLE}\r\n"));
    assert_eq!(
        (anonymous.status, &anonymous.json()["message"]),
        (403, &"You cannot consume this service".into())
    );
    for target in ["/api/mcp", "/mcp", "/realtime/v1/api/tenants/x", "/realtime/v1/api/openapi"] {
        let response = supabase.gateway.get_with(target, &format!("apikey: {SECRET}\r\n"));
        assert_eq!(
            (response.status, response.text()),
            (403, r#"{"message":"Access is forbidden."}"#),
            "{target}"
        );
    }
}

#[test]
fn the_dashboard_asks_for_a_password() {
    let supabase = Supabase::start();
    for target in ["/", "/project/default", "/analytics/v1"] {
        let response = supabase.gateway.get(target);
        assert_eq!(
            (response.status, response.header("www-authenticate")),
            (401, Some("Basic realm=\"service\""))
        );
        // supabase:a password
        let (status, asked) = supabase.ask(target, "Authorization: Basic c3VwYWJhc2U6YSBwYXNzd29yZA==\r\n");
        assert_eq!((status, asked.header("authorization")), (200, vec![]), "hide_credentials: {target}");
    }
}

#[test]
fn browsers_may_ask_from_elsewhere() {
    let supabase = Supabase::start();
    let preflight = supabase.gateway.send(
        "OPTIONS /rest/v1/todos HTTP/1.1\r\nHost: localhost\r\nOrigin: https://app.test\r\n\
         Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: apikey,authorization\r\n\r\n",
    );
    assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (200, Some("*")));
    assert_eq!(preflight.header("access-control-allow-headers"), Some("apikey,authorization"));
    let refused = supabase.gateway.get_with("/rest/v1/todos", "Origin: https://app.test\r\n");
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, Some("*")));
}
