//! Settings that refer to secrets.
use crate::harness::{Gateway, Upstream, one_route, weir};

#[test]
fn settings_come_from_vaults() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("level"), "debug\n").unwrap();
    let gateway = Gateway::builder("_format_version: '3.0'")
        .env("KONG_LOG_LEVEL", "{vault://file/level}")
        .env("KONG_VAULT_FILE_DIRECTORY", "{vault://env/secrets}")
        .env("KONG_PG_PORT", "{vault://env/port}")
        .env("PORT", "5433")
        .env("KONG_PG_PASSWORD", "{vault://env/port}")
        .env("KONG_CLIENT_HEADER_TIMEOUT", "{vault://env/timeout}")
        .env("TIMEOUT", "50s")
        .env("SECRETS", &folder.path().display().to_string())
        .start();
    assert_eq!(gateway.admin("/debug/node/log-level").json()["message"], "log level: debug");
    let shown = gateway.admin("/").json()["configuration"].clone();
    assert_eq!(shown["log_level"], "{vault://file/level}");
    assert_eq!(shown["client_header_timeout"], "{vault://env/timeout}");
    assert_eq!(shown["pg_port"], "{vault://env/port}");
    assert_eq!(shown["pg_password"], "******");
}

#[test]
fn a_node_does_not_start_without_the_secrets_of_its_settings() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\n\r\n");
    for (name, value, expected) in [
        (
            "KONG_PG_PASSWORD",
            "{vault://env/none}",
            "environment variable KONG_PG_PASSWORD: pg_password: failed to dereference '{vault://env/none}': could not get \
             value from external vault (no value found (the environment has no NONE))",
        ),
        ("KONG_LOG_LEVEL", "{vault://mine/x}", "could not find vault (mine)"),
        (
            "KONG_DRAIN_TIMEOUT",
            "{vault://env/my-secret}",
            "drain_timeout: what the vault has for it is not valid here",
        ),
        ("KONG_VAULT_HCV_TOKEN", "{vault://env/none}", "vault_hcv_token: failed to dereference"),
        ("KONG_VAULT_HCV_KV", "v3", "vault_hcv_kv: `v3` is not one of `v1`, `v2`"),
        ("KONG_VAULT_HCV_PROTOCOL", "tcp", "vault_hcv_protocol: `tcp` is not one of `http`, `https`"),
        (
            "KONG_VAULT_HCV_AUTH_METHOD",
            "ldap",
            "vault_hcv_auth_method: `ldap` is not one of `token`, `kubernetes`, `approle`",
        ),
        ("KONG_VAULTS", "env,aws", "vaults: `aws` is not one of bundled, off, env, file, hcv"),
    ] {
        let builder = Gateway::builder(&one_route(upstream.address)).env("MY_SECRET", "hunter2");
        let (status, log) = builder.env(name, value).fail();
        assert_eq!(status.code(), Some(1), "{name}");
        assert!(log.contains(expected) && !log.contains("hunter2"), "{name}: {log}");
    }
}

#[test]
fn a_node_that_runs_is_found_without_its_secrets() {
    let gateway = Gateway::empty().start();
    let ask = |prefix: &str| {
        let mut command = weir();
        command.env("KONG_PG_PASSWORD", "{vault://env/none}").env("KONG_PG_PORT", "{vault://env/none}");
        command.args(["health", "--prefix", prefix]).output().unwrap()
    };
    let found = ask(&gateway.prefix().display().to_string());
    assert!(found.status.success(), "{found:?}");
    let needed = ask("{vault://env/none}");
    assert!(String::from_utf8_lossy(&needed.stderr).contains("prefix: failed to dereference"), "{needed:?}");
}
