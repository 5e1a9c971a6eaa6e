//! Which value counts, and what is said about those that cannot be used.
use super::*;
use std::io::Write;
use std::time::Duration;

fn sources(
    file: &str,
    environment: &[(&str, &str)],
    flags: &[(&str, &str)],
) -> (Sources, tempfile::NamedTempFile) {
    let mut temporary = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    temporary.write_all(file.as_bytes()).unwrap();
    let flag = |(name, value): &(&str, &str)| Flag {
        written: format!("--set {name}"),
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    };
    let sources = Sources {
        flags: flags.iter().map(flag).collect(),
        environment: environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        file: Some(temporary.path().to_owned()),
        ..Sources::default()
    };
    (sources, temporary)
}

#[track_caller]
fn good(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Loaded {
    let (sources, _file) = sources(file, environment, flags);
    load(sources).expect("the settings are good")
}

#[track_caller]
fn bad(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Vec<String> {
    let (sources, temporary) = sources(file, environment, flags);
    let path = temporary.path().display().to_string();
    let problems = load(sources).expect_err("the settings are bad");
    problems.iter().map(|problem| problem.to_string().replace(&path, "weir.toml")).collect()
}

#[test]
fn flags_then_weir_then_kong_then_the_file() {
    let file = "log_level = 'debug'";
    let kong = ("KONG_LOG_LEVEL", "warn");
    let weir = ("WEIR_LOG_LEVEL", "error");
    let level = |loaded: Loaded| loaded.settings.log_level;
    assert_eq!(level(good("", &[], &[])), LogLevel::Notice);
    assert_eq!(level(good(file, &[], &[])), LogLevel::Debug);
    assert_eq!(level(good(file, &[kong], &[])), LogLevel::Warn);
    assert_eq!(level(good(file, &[kong, weir], &[])), LogLevel::Error);
    assert_eq!(
        level(good(file, &[kong, weir], &[("log_level", "crit"), ("log_level", "alert")])),
        LogLevel::Alert
    );
}

#[test]
fn every_default_is_good() {
    let settings = good("", &[], &[]).settings;
    assert_eq!(settings.proxy_listen.0.len(), 2);
    assert_eq!(settings.keepalive_timeout, Duration::from_secs(75));
    assert_eq!(settings.client_max_body_size, Bytes(0));
    assert!(settings.headers.via && settings.headers.request_id && !settings.headers.upstream_status);
}

#[test]
fn nginx_directives_are_other_names() {
    let environment = [("KONG_NGINX_WORKER_PROCESSES", "3"), ("KONG_NGINX_HTTP_CLIENT_MAX_BODY_SIZE", "8m")];
    let loaded = good("nginx_main_worker_shutdown_timeout = '2s'", &environment, &[]);
    assert_eq!(loaded.settings.workers, Workers(3));
    assert_eq!(loaded.settings.client_max_body_size, Bytes(8 << 20));
    assert_eq!(loaded.settings.drain_timeout, Duration::from_secs(2));
    assert_eq!(loaded.given, ["client_max_body_size", "drain_timeout", "workers"]);
}

#[test]
fn an_alias_and_a_name_are_one_setting() {
    let loaded = good("nginx_worker_processes = 2", &[], &[("workers", "4")]);
    assert_eq!(loaded.settings.workers, Workers(4));
}

#[test]
fn toml_values_are_read_as_kong_conf_would_write_them() {
    let file =
        "trusted_ips = ['10.0.0.0/8', '::1']\nreal_ip_recursive = true\ndns_error_ttl = 0.5\nworkers = 2";
    let settings = good(file, &[], &[]).settings;
    assert_eq!(settings.trusted_ips.len(), 2);
    assert!(settings.real_ip_recursive);
    assert_eq!(settings.dns_error_ttl, Duration::from_millis(500));
}

#[test]
fn each_kong_variable_without_a_meaning_gets_one_warning_without_its_value() {
    let environment = [
        ("KONG_PG_BACKLOG", "16"),
        ("KONG_CLUSTER_CERT_KEYS", "hunter2"),
        ("KONG_LOG_LEVEL", "warn"),
        ("HOME", "/"),
    ];
    let warnings = good("", &environment, &[]).warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("KONG_CLUSTER_CERT_KEYS") && warnings[1].contains("KONG_PG_BACKLOG"));
    assert!(!warnings.concat().contains("hunter2"));
}

#[test]
fn settings_of_kongs_hybrid_mode_without_a_meaning_are_ignored_as_flags_too() {
    let flags = [("cluster_telemetry_listen", "0.0.0.0:8006"), ("lmdb_map_size", "2048m")];
    let warnings = good("", &[("KONG_CLUSTER_TELEMETRY_ENDPOINT", "control.test:8006")], &flags).warnings;
    assert_eq!(
        warnings,
        [
            "environment variable KONG_CLUSTER_TELEMETRY_ENDPOINT is ignored: data planes send no telemetry",
            "--set cluster_telemetry_listen is ignored: data planes send no telemetry",
            "--set lmdb_map_size is ignored: it is about how Kong stores and reads what a control plane sends",
        ]
    );
}

#[test]
fn an_empty_variable_counts_as_absent() {
    let loaded = good("log_level = 'debug'", &[("KONG_LOG_LEVEL", ""), ("WEIR_NONSENSE", " ")], &[]);
    assert_eq!(loaded.settings.log_level, LogLevel::Debug);
}

#[test]
fn a_setting_whose_name_ends_as_that_of_a_file_is_not_read_from_one() {
    let file = ("KONG_VAULT_HCV_APPROLE_SECRET_ID_FILE", "/not/there/yet");
    let settings = good("", &[file], &[]).settings;
    assert_eq!(settings.vault_hcv_approle_secret_id_file.as_deref(), Some("/not/there/yet"));
    assert_eq!(settings.vault_hcv_approle_secret_id, None);
}

#[test]
fn all_problems_come_at_once_and_say_where() {
    let problems = bad(
        "workers = 2\nadmin_lisen = 'off'\n\n[database]\nname = 1",
        &[("WEIR_LOG_LEVL", "debug"), ("KONG_PROXY_LISTEN", "8000")],
        &[("trusted_ips", "10.0.0.0/40"), ("qqq", "1")],
    );
    let all = problems.join("\n");
    for expected in [
        "weir.toml:2: there is no setting `admin_lisen`: did you mean `admin_listen`?",
        "weir.toml:4: `database` must be a string, a number, a boolean or an array of these",
        "environment variable WEIR_LOG_LEVL: there is no setting `log_levl`: did you mean `log_level`?",
        "environment variable KONG_PROXY_LISTEN: proxy_listen: `8000` is not an `address:port`",
        "--set trusted_ips: `10.0.0.0/40` is not an IP address or a network",
        "--set qqq: there is no setting `qqq`: remove it",
    ] {
        assert!(all.contains(expected), "{expected}\nis not in\n{all}");
    }
    assert_eq!(problems.len(), 6, "{all}");
}

#[test]
fn a_file_that_is_not_toml_says_at_which_line() {
    let problems = bad("workers = 2\nlog_level = \n", &[], &[]);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("weir.toml:2: "), "{problems:?}");
}

#[test]
fn a_file_that_is_not_there_is_a_problem() {
    let file = Some("no/such/weir.toml".into());
    let problems = load(Sources { file, ..Sources::default() }).unwrap_err();
    assert!(problems[0].to_string().starts_with("no/such/weir.toml: cannot be read"), "{problems:?}");
}

#[test]
fn what_does_not_work_yet_names_what_does() {
    for (name, value, hint) in [
        ("database", "cassandra", "`postgres`"),
        ("router_flavor", "atc", "`expressions`"),
        ("ssl_cert", "cert.pem", "`ssl_cert_key`"),
        ("client_ssl_cert", "cert.pem", "`client_ssl_cert_key`"),
        ("ssl_cipher_suite", "custom", "`ssl_ciphers`"),
        ("ssl_ciphers", "AES128-SHA", "`ECDHE-RSA-AES128-GCM-SHA256`"),
    ] {
        let problems = bad("", &[], &[(name, value)]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(
            problems[0].starts_with(&format!("--set {name}: ")) && problems[0].contains(hint),
            "{problems:?}"
        );
    }
}

#[test]
fn memory_that_one_body_may_take_alone_is_warned_of() {
    for (size, warned) in [("10", 1), ("100k", 1), ("16383k", 1), ("16m", 0), ("256m", 0), ("0", 0)] {
        let warnings = good("", &[], &[("mem_bodies_size", size)]).warnings;
        assert_eq!(warnings.len(), warned, "{size}: {warnings:?}");
    }
}

#[test]
fn a_secret_is_in_no_message() {
    let problems = bad("ssl_cert = 'c.pem'\nssl_cert_key = 'hunter2'", &[], &[]);
    assert_eq!(
        problems,
        ["weir.toml:2: ssl_cert_key: no such file: name one that holds the private key as PEM"]
    );
    let problems = bad("ssl_cert = 'c.pem'\nssl_cert_key = '/no/key.pem'", &[], &[]);
    let said =
        "weir.toml:2: ssl_cert_key: /no/key.pem: no such file: name one that holds the private key as PEM";
    assert_eq!(problems, [said]);
}

#[test]
fn a_database_is_found_by_kongs_own_settings() {
    let environment =
        [("KONG_DATABASE", "postgres"), ("KONG_PG_PASSWORD", " hunter2"), ("KONG_PG_TIMEOUT", "1500")];
    let Loaded { settings, warnings, .. } = good("", &environment, &[]);
    assert_eq!(warnings, [""; 0]);
    assert_eq!(settings.database, Some(Database::Postgres));
    assert_eq!(settings.pg_password, Some(Password(" hunter2".to_owned())));
    assert_eq!(settings.pg_timeout.0.as_millis(), 1500);
    assert!(!format!("{settings:?}").contains("hunter2"));
    for (name, value) in [("pg_timeout", "0"), ("pg_timeout", "5s"), ("pg_port", "65536")] {
        assert_eq!(bad("", &[], &[(name, value)]).len(), 1, "{name} {value}");
    }
}

#[test]
fn ciphers_given_as_a_directive_are_offered() {
    let ciphers = ("KONG_NGINX_PROXY_SSL_CIPHERS", "ECDHE-RSA-AES256-GCM-SHA384");
    let Loaded { settings, warnings, .. } = good("", &[ciphers], &[]);
    assert_eq!((settings.ssl_cipher_suite, warnings), (CipherSuite::Custom, Vec::new()));
    let plain = good("ssl_ciphers = 'ECDHE-RSA-AES256-GCM-SHA384'", &[], &[]);
    assert_eq!(plain.settings.ssl_cipher_suite, CipherSuite::Intermediate);
}

#[test]
fn no_listener_speaks_a_version_of_tls_that_its_directive_leaves_out() {
    let (stream, admin) =
        (("KONG_STREAM_LISTEN", "127.0.0.1:0 ssl"), ("KONG_NGINX_ADMIN_SSL_PROTOCOLS", "TLSv1.3"));
    let narrow = ("KONG_NGINX_STREAM_SSL_PROTOCOLS", "TLSv1.3");
    let problems = bad("", &[stream, narrow, admin], &[]);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(
        problems[0].contains("KONG_NGINX_STREAM_SSL_PROTOCOLS: ")
            && problems[0].contains("write ssl_protocols")
    );
    let both = ("KONG_NGINX_STREAM_SSL_PROTOCOLS", "TLSv1.2 TLSv1.3");
    for others in
        [&[narrow][..], &[stream, both], &[stream, narrow, ("KONG_NGINX_HTTP_SSL_PROTOCOLS", "TLSv1.3")]]
    {
        assert_eq!(good("", others, &[]).warnings, [""; 0], "{others:?}");
    }
}

#[test]
fn directives_of_requests_and_streams_do_not_contradict() {
    let requests = ("KONG_NGINX_PROXY_PROXY_SSL_VERIFY_DEPTH", "1");
    let streams = |depth| ("KONG_NGINX_SPROXY_PROXY_SSL_VERIFY_DEPTH", depth);
    let problems = bad("", &[requests, streams("2")], &[]);
    assert!(problems.len() == 1 && problems[0].contains("write the same"), "{problems:?}");
    assert_eq!(good("", &[requests, streams("1")], &[]).settings.proxy_ssl_verify_depth, Some(1));
}

#[test]
fn the_directive_of_an_inner_block_counts() {
    let inner = ("KONG_NGINX_PROXY_CLIENT_MAX_BODY_SIZE", "1k");
    let outer = ("KONG_NGINX_HTTP_CLIENT_MAX_BODY_SIZE", "2k");
    assert_eq!(good("", &[outer, inner], &[]).settings.client_max_body_size.0, 1024);
}

#[test]
fn a_directive_that_is_none_is_left_out() {
    let none = [("KONG_NGINX_HTTP_SSL_PROTOCOLS", "NONE"), ("KONG_NGINX_PROXY_ALLOW", "NONE")];
    let Loaded { settings, warnings, .. } = good("", &none, &[]);
    assert!(settings.ssl_protocols.v1_2 && settings.ssl_protocols.v1_3);
    assert_eq!(warnings, [""; 0]);
}

#[test]
fn as_kong_a_host_of_postgres_means_that_database() {
    let as_kong = |environment: &[(&str, &str)]| {
        let (sources, _file) = sources("", environment, &[]);
        load(Sources { as_kong: true, ..sources }).expect("the settings are good").settings.database
    };
    let host = ("KONG_PG_HOST", "db");
    assert_eq!(as_kong(&[host]), Some(Database::Postgres));
    assert_eq!(as_kong(&[host, ("KONG_DATABASE", "off")]), Some(Database::Off));
    assert_eq!(as_kong(&[host, ("KONG_DECLARATIVE_CONFIG", "kong.yml")]), None);
    assert_eq!(as_kong(&[]), None);
    assert_eq!(good("", &[host], &[]).settings.database, None);
}

/// What keeps a control plane or a data plane from starting is said at once, in Kong's words.
#[test]
fn roles_demand_their_settings() {
    let said = |flags: &[(&str, &str)]| bad("", &[], flags).join("\n");
    let pair = [("cluster_cert", "/a.crt"), ("cluster_cert_key", "/a.key")];
    let control = |more: &[(&'static str, &'static str)]| {
        said(&[&[("role", "control_plane")], &pair[..], more].concat())
    };
    let data =
        |more: &[(&'static str, &'static str)]| said(&[&[("role", "data_plane")], &pair[..], more].concat());
    for (text, expected) in [
        (said(&[("role", "data_plane")]), "cluster certificate and key must be provided to use Hybrid mode"),
        (
            said(&[("role", "control_plane")]),
            "cluster certificate and key must be provided to use Hybrid mode",
        ),
        (control(&[("admin_listen", "off")]), "admin_listen must be specified when role = \"control_plane\""),
        (
            control(&[("cluster_listen", "off")]),
            "cluster_listen must be specified when role = \"control_plane\"",
        ),
        (control(&[("database", "off")]), "in-memory storage can not be used when role = \"control_plane\""),
        (control(&[("declarative_config", "a.yaml")]), "in-memory storage can not be used"),
        (
            control(&[("cluster_mtls", "pki")]),
            "cluster_ca_cert must be specified when cluster_mtls = \"pki\"",
        ),
        (
            control(&[("cluster_use_proxy", "on")]),
            "cluster_use_proxy can not be used when role = \"control_plane\"",
        ),
        (
            control(&[("cluster_dp_labels", "a:b")]),
            "cluster_dp_labels can not be used when role = \"control_plane\"",
        ),
        (control(&[("apisix_etcd", "http://127.0.0.1:2379")]), "apisix_etcd can only be used when role"),
        (data(&[("apisix_etcd", "http://127.0.0.1:2379")]), "apisix_etcd can only be used when role"),
        (data(&[("proxy_listen", "off")]), "proxy_listen must be specified when role = \"data_plane\""),
        (data(&[("database", "postgres")]), "only in-memory storage can be used when role = \"data_plane\""),
        (
            data(&[("cluster_use_proxy", "on")]),
            "cluster_use_proxy is turned on but no proxy_server is configured",
        ),
        (data(&[("cluster_dp_labels", "kong:b")]), "keys that begin with `kong` are reserved"),
        (
            said(&[("cluster_dp_labels", "a:b")]),
            "cluster_dp_labels can only be used when role = \"data_plane\"",
        ),
        (
            said(&[("cluster_data_plane_purge_delay", "59")]),
            "cluster_data_plane_purge_delay must be 60 or greater",
        ),
        (said(&[("cluster_max_payload", "4194303")]), "cluster_max_payload must be 4194304 (4MB) or greater"),
        (said(&[("cluster_mtls", "pki_check_cn")]), "`pki_check_cn` is not one of `shared`, `pki`"),
    ] {
        assert!(text.contains(expected), "{text}\nlacks\n{expected}");
    }
}

#[test]
fn increments_need_the_second_protocol() {
    let given = |rpc: &str| good("", &[], &[("cluster_incremental_sync", "on"), ("cluster_rpc", rpc)]);
    let off = given("off");
    assert!(off.warnings.concat().contains("cluster_rpc is off: switch both on"), "{:?}", off.warnings);
    assert!(!off.settings.cluster_incremental_sync);
    let on = given("on");
    assert_eq!((on.warnings, on.settings.cluster_incremental_sync), (Vec::new(), true));
}

#[test]
fn roles_take_listeners_away() {
    let pair = [("cluster_cert", "/a.crt"), ("cluster_cert_key", "/a.key")];
    let settings = |role: &str| good("", &[], &[&[("role", role)], &pair[..]].concat()).settings;
    let control = settings("control_plane");
    assert!(control.proxy_listen.0.is_empty() && !control.admin_listen.0.is_empty());
    assert_eq!(control.cluster_listen.0.len(), 1);
    let data = settings("data_plane");
    assert!(data.admin_listen.0.is_empty() && data.cluster_listen.0.is_empty());
    assert_eq!((data.proxy_listen.0.len(), data.database), (2, Some(Database::Off)));
    assert!(settings("traditional").cluster_listen.0.is_empty());
}

#[test]
fn a_control_plane_says_that_its_data_planes_send_metrics() {
    let endpoint = ("analytics_otlp_endpoint", "http://127.0.0.1:4318/v1/metrics");
    let pair = [("cluster_cert", "/a.crt"), ("cluster_cert_key", "/a.key")];
    let warnings = |role| good("", &[], &[&[("role", role), endpoint], &pair[..]].concat()).warnings.concat();
    let expected = "analytics_otlp_endpoint has no effect when role = \"control_plane\"";
    assert!(warnings("control_plane").contains(expected), "{}", warnings("control_plane"));
    let alone = good("", &[], &[endpoint]).warnings;
    assert!(alone.is_empty(), "{alone:?}");
}
