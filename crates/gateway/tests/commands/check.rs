//! kong.conf, and the commands that need no node: `kong check`, `version`, `config` and `hybrid`.
use super::{EMPTY, Kong};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

#[test]
fn settings_are_told_from_declarative_files_by_their_content() {
    let kong = Kong::bare();
    let write = |name: &str, text: &str| fs::write(kong.path(name), text).unwrap();
    write("good.conf", "# Kong\ndatabase = off # no database\nlog_level=warn\nnginx_proxy_gzip = on\n");
    write("bad.conf", "log_level = loud\nproxy_listen\n");
    write("weir.toml", "log_level = 'debug'\n");
    write("good.yml", EMPTY);
    let good = kong.run(&["kong", "check", "good.conf"]);
    good.expect(0, "configuration at good.conf is valid\n", "good.conf:4: nginx_proxy_gzip is ignored: ");
    let bad = kong.run(&["kong", "check", "bad.conf"]);
    bad.expect(1, "", "bad.conf:1: log_level: `loud`");
    assert!(bad.stderr.contains("bad.conf:2: a line is `name = value`"), "{}", bad.stderr);
    kong.run(&["weir", "check", "weir.toml"]).expect(0, "configuration at weir.toml is valid\n", "");
    kong.run(&["kong", "check", "good.yml"]).expect(0, "good.yml: good\n", "");
    kong.run(&["kong", "check", "no.conf"]).expect(1, "", "no.conf");
}

#[test]
fn errors_of_settings_hide_none_of_files() {
    let kong = Kong::bare().with("KONG_NGINX_PROXY_ALLOW", "1").with("WEIR_LOG_LEVEL", "loud");
    let kong = kong.with("KONG_PLUGINS", "cors,no-such");
    let write = |name: &str, text: &str| fs::write(kong.path(name), text).unwrap();
    write("kong.conf", "workers = many\nnginx_proxy_gzip = on\n");
    write(
        "kong.yml",
        "_format_version: '3.0'\nservices:\n- name: s\n  hots: a\nplugins:\n- name: cors\n  config: {max_age: x}\n",
    );
    write("other.yml", "_format_version: '3.0'\nplugins:\n- name: key-auth\n");
    for against in [&[][..], &["--against", "kong"]] {
        let words = [&["weir", "check", "kong.conf", "kong.yml", "http://127.0.0.1:1", "other.yml"], against]
            .concat();
        let checked = kong.run(&words);
        assert_eq!(checked.code, Some(1), "{}", checked.stderr);
        for error in [
            "environment variable KONG_NGINX_PROXY_ALLOW: nginx_proxy_allow: this directive protects",
            "environment variable WEIR_LOG_LEVEL: log_level: `loud`",
            "no-such plugin is enabled but not installed",
            "kong.conf:1: workers: ",
            "warning: kong.conf:2: nginx_proxy_gzip is ignored",
            "kong.yml:4:3: services[0]: unknown field `hots`",
            "kong.yml:7:21: plugins[0].config.max_age: ",
            "http://127.0.0.1:1/: ",
            "other.yml:3:9: plugins[0].name: plugin `key-auth` is switched off: the setting `plugins` names only cors",
        ] {
            let count = checked.stderr.lines().filter(|line| line.starts_with(error)).count();
            assert_eq!(count, 1, "{error}:\n{}", checked.stderr);
        }
    }
}

#[test]
fn variables_that_are_no_settings_are_warned_about_once_whatever_is_checked() {
    let kong = Kong::bare().with("KONG_DATABSE", "off");
    fs::write(kong.path("kong.yml"), EMPTY).unwrap();
    fs::write(kong.path("kong.conf"), "log_level = warn\n").unwrap();
    let said = "warning: environment variable KONG_DATABSE ";
    for files in [&["kong.yml"][..], &["kong.conf"], &["kong.conf", "kong.yml"]] {
        let checked = kong.run(&[&["weir", "check"], files].concat());
        let lines: Vec<_> = checked.stderr.lines().filter(|line| line.starts_with(said)).collect();
        assert_eq!((checked.code, lines.len()), (Some(0), 1), "{}", checked.stderr);
        assert!(lines[0].ends_with("did you mean KONG_DATABASE?"), "{}", lines[0]);
    }
}

#[test]
fn references_within_lists_are_judged_by_the_field_that_has_them() {
    let kong = Kong::bare();
    let document = "_format_version: '3.0'\nplugins:\n- name: ai-proxy-multi\n  config:\n    instances:\n    - name: \"{vault://env/name}\"\n      provider: openai\n      auth: {header: {Authorization: \"{vault://env/key}\"}}\n";
    fs::write(kong.path("kong.yml"), document).unwrap();
    let checked = kong.run(&["weir", "check", "kong.yml"]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let literal: Vec<_> =
        checked.stderr.lines().filter(|line| line.contains("vault references are taken literally")).collect();
    assert_eq!(literal.len(), 1, "{}", checked.stderr);
    assert!(literal[0].contains("plugins[0].config.instances[0].name: "), "{}", checked.stderr);
}

#[test]
fn a_named_kong_conf_is_read_below_the_environment() {
    let kong = Kong::bare();
    let conf = format!("prefix = {}\ndatabase = off\nlog_level = loud\n", kong.prefix());
    fs::write(kong.path("kong.conf"), conf).unwrap();
    kong.run(&["kong", "health", "-c", "kong.conf"]).expect(1, "", "kong.conf:3: log_level: `loud`");
    let kong = kong.with("KONG_LOG_LEVEL", "warn");
    let expected = format!("no such prefix: {}", kong.prefix());
    kong.run(&["kong", "health", "-c", "kong.conf"]).expect(1, "", &expected);
    kong.run(&["kong", "health", "--conf", "none.conf"]).expect(1, "", "none.conf: cannot be read");
}

/// A command of the machine's with a folder in place of /etc. This takes root, or the right to make user namespaces.
fn with_etc(kong: &Kong, etc: &Path, words: &[&str]) -> Command {
    let command = kong.command(words);
    let mut mounted = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        mounted.arg("--map-root-user");
    }
    mounted.args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc && exec \"$@\""]).arg(etc);
    mounted.arg(command.get_program()).args(command.get_args()).env_clear();
    mounted.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    mounted.current_dir(kong.folder.path());
    mounted
}

#[test]
fn without_a_file_kongs_own_is_read() {
    let kong = Kong::bare();
    for path in ["etc/kong/kong.conf", "etc/kong.conf"] {
        let file = kong.path(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, format!("prefix = {}/of/{path}\n", kong.prefix())).unwrap();
        let output = with_etc(&kong, &kong.path("etc"), &["kong", "health"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(&format!("no such prefix: {}/of/{path}", kong.prefix())), "{said}");
        if path == "etc/kong/kong.conf" {
            let checked = with_etc(&kong, &kong.path("etc"), &["kong", "check"]).output().unwrap();
            let said = String::from_utf8(checked.stdout).unwrap();
            assert_eq!(said, "configuration at /etc/kong/kong.conf is valid\n");
        }
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn plugins_that_configurations_may_use_are_listed() {
    let kong = Kong::bare();
    let all = kong.run(&["weir", "plugins"]);
    assert!(all.code == Some(0) && all.stdout.lines().any(|line| line == "key-auth"), "{}", all.stderr);
    assert!(all.stdout.lines().is_sorted(), "{}", all.stdout);
    kong.run(&["weir", "plugins", "--set", "plugins=key-auth,cors"]).expect(0, "cors\nkey-auth\n", "");
    fs::write(
        kong.path("kong.yml"),
        "_format_version: '3.0'\nplugins:\n- name: no-such\n- name: my-redirect\n",
    )
    .unwrap();
    let own = "one of your own in Lua has to be named in the setting `plugins`";
    let checked = kong.run(&["weir", "check", "kong.yml"]);
    checked.expect(
        1,
        "",
        &format!("no such plugin `no-such`; `weir plugins` lists those that are available; {own}\n"),
    );
    checked.expect(1, "", "`my-redirect`; did you mean `redirect`? If it is one of your own in Lua, name it in the setting `plugins`\n");
}

#[test]
fn versions_are_those_that_scripts_compare() {
    let kong = Kong::bare();
    kong.run(&["kong", "version"]).expect(0, &format!("{}\n", weir_plugins::KONG_VERSION), "");
    let all = kong.run(&["kong", "version", "-a"]);
    assert!(all.stdout.starts_with(&format!("Kong: {}\n", weir_plugins::KONG_VERSION)), "{}", all.stdout);
    let own = format!("weir {}\n", env!("CARGO_PKG_VERSION"));
    kong.run(&["weir", "version"]).expect(0, &own, "");
    kong.run(&["weir", "--version"]).expect(0, &own, "");
}

#[test]
fn declarative_files_are_made_and_parsed() {
    let kong = Kong::bare();
    kong.run(&["kong", "config", "init"]).expect(0, "", "");
    kong.run(&["kong", "config", "parse", "kong.yml"]).expect(0, "parse successful\n", "");
    let again = kong.run(&["kong", "config", "init"]);
    again.expect(1, "", "Error: kong.yml already exists in the current directory.\nWill not overwrite it.");
    fs::write(kong.path("bad.yml"), "services: 7\n").unwrap();
    kong.run(&["kong", "config", "parse", "bad.yml"]).expect(1, "", "Error: Failed parsing:\nbad.yml:1:1: ");
}

#[test]
fn what_is_not_there_says_why() {
    let kong = Kong::bare();
    let counters = kong.run(&["kong", "migrations", "reinitialize-workspace-entity-counters"]);
    counters.expect(0, "entities are not counted in the database: nothing to do\n", "");
}

#[test]
fn the_certificate_of_a_fleet_is_generated() {
    let kong = Kong::bare();
    let (cert, key) = (kong.path("cluster.crt"), kong.path("cluster.key"));
    let written = format!(
        "Successfully generated certificate/key pairs, they have been written to: '{}' and '{}'.\n",
        cert.display(),
        key.display()
    );
    kong.run(&["kong", "hybrid", "gen_cert"]).expect(0, &written, "");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&cert), mode(&key)), (0o644, 0o600));
    let text = Command::new("openssl").args(["x509", "-noout", "-text", "-in"]).arg(&cert).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    for part in ["CN = kong_clustering", "DNS:kong_clustering", "secp384r1"] {
        assert!(text.contains(part), "{text}");
    }
    let valid = |seconds: &str| {
        Command::new("openssl")
            .args(["x509", "-checkend", seconds, "-noout", "-in"])
            .arg(&cert)
            .status()
            .unwrap()
    };
    assert!(valid("94607000").success(), "it is valid for 1095 days");
    assert!(!valid("94609000").success(), "and no longer");
    let again = kong.run(&["kong", "hybrid", "gen_cert"]);
    again.expect(1, "", &format!("Error: {} already exists.\nWill not overwrite it.", cert.display()));
    let one = kong.run(&["kong", "hybrid", "gen_cert", "a.crt"]);
    one.expect(1, "", "Error: both cert and key path needs to be provided");
    let done = kong.run(&["kong", "hybrid", "gen_cert", "a.crt", "a.key", "-d", "2"]);
    assert!(done.code == Some(0) && kong.path("a.key").exists(), "{}", done.stderr);
    kong.run(&["kong", "hybrid", "gen_cert", "b.crt", "b.key", "-d", "0"]).expect(1, "", "Error: --days 0");
}
