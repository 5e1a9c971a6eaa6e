//! `weir vault get`.
use crate::harness::weir;
use std::process::Output;

fn get(arguments: &[&str]) -> Output {
    let mut command = weir();
    command.env("MY_SECRET", "hunter2").env("APP_MY_SECRET", "hunter3").env("CREDS", r#"{"name": "ann"}"#);
    command.args(["vault", "get"]).args(arguments).output().expect("the binary runs")
}

#[test]
fn secrets_are_printed() {
    for (reference, expected) in [
        ("env/my-secret", "hunter2\n"),
        ("{vault://env/my_secret}", "hunter2\n"),
        ("env/my-secret?prefix=app_", "hunter3\n"),
        ("{vault://env/creds/name}", "ann\n"),
    ] {
        let output = get(&[reference]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{reference}");
        assert!(output.status.success() && output.stderr.is_empty(), "{reference}");
    }
}

#[test]
fn settings_configure_the_vault() {
    let output = get(&["env/my-secret", "--set", "vault_env_prefix=app-"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hunter3\n", "{output:?}");
}

#[test]
fn settings_that_there_are_not_are_named_in_a_warning() {
    let mut command = weir();
    command.env("KONG_VAULT_FILE_PREFIX", "app-").env("MY_SECRET", "hunter2");
    let output = command.args(["vault", "get", "env/my-secret"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("warning: ") && error.contains("VAULT_FILE_PREFIX"), "{error}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hunter2\n", "{error}");
}

#[test]
fn the_vaults_of_a_file_are_known() {
    let file = tempfile::NamedTempFile::with_suffix(".yml").unwrap();
    let text = "_format_version: '3.0'\nvaults:\n- {prefix: mine, name: env, config: {prefix: app_}}\n";
    std::fs::write(file.path(), text).unwrap();
    let output = get(&["mine/my-secret", "--config", &file.path().display().to_string()]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hunter3\n", "{output:?}");
}

#[test]
fn what_is_not_a_reference_to_a_known_vault_is_refused_before_a_database_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("none").display().to_string();
    for (reference, expected) in [
        ("{vault:/env/x}", "Error: not a reference: write {vault://VAULT/NAME}"),
        ("{vault://env/my-secret", "Error: not a reference: write {vault://VAULT/NAME}"),
        ("vault://env/my-secret", "Error: not a reference: write {vault://VAULT/NAME}"),
        (
            "{vault://nop/x}",
            "Error: no vault `nop`: env, file, hcv; for a vault entity give --config FILE or --prefix",
        ),
        (
            "file/weir-has-none",
            "/run/secrets/weir-has-none: no such file; put the secret there, or set vault_file_directory",
        ),
        ("{vault://hcv/a/b}", "set token (the setting vault_hcv_token, or the entity's config)"),
    ] {
        let output = get(&[reference, "--set", "database=sqlite", "--prefix", &prefix]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains(expected), "{reference}: {error}");
        assert_eq!((output.status.code(), error.contains("SQLite")), (Some(1), reference.contains("nop")));
    }
}

#[test]
fn errors_are_kongs() {
    let config = ["--set", "database=off"];
    for (arguments, expected) in [
        (&[][..], "Error: the 'get' command needs a <reference> argument"),
        (&["none/foo"], "Error: could not find vault (none)"),
        (
            &["env/none"],
            "Error: could not get value from external vault (no value found (the environment has no NONE))",
        ),
        (&["env"], "Error: reference url is missing path [{vault://env}]"),
        (
            &["env/my-secret/key"],
            "Error: could not get value from external vault (could not get subfield value: unable to json",
        ),
    ] {
        let output = get(&[arguments, &config].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            (output.status.code(), output.stdout.is_empty()),
            (Some(1), true),
            "{arguments:?}: {error}"
        );
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}
