//! The settings of a node: what `weir.toml`, the environment and the flags say, read into typed fields.
//!
//! [`table`] declares every setting; [`source`] decides which of several values counts; [`load`] puts them together
//! and returns every problem at once.
mod admin_auth;
mod apisix_key;
mod ciphers;
mod cluster;
mod declaration;
mod directives;
mod headers;
mod included;
mod kong_conf;
mod listen;
mod manual;
mod nginx_syntax;
mod role;
mod service_links;
mod source;
mod table;
mod trusted_certificates;
mod value;
mod vaults;

pub(crate) use admin_auth::{AdminAuth, TokenRole, new_token};
pub(crate) use apisix_key::{AdminKey, file as apisix_key_file};
pub(crate) use cluster::Pem;
pub(crate) use headers::Headers;
pub(crate) use kong_conf::{default_file as default_kong_conf, is_kong_conf, of_kong_conf};
pub(crate) use listen::{Listen, Listeners};
pub(crate) use manual::manual;
pub(crate) use service_links::is_service_link;
pub(crate) use source::{Problem, why_ignored};
pub(crate) use table::Settings;
pub(crate) use trusted_certificates::{trusted_certificate_files, verify_by_system};
pub(crate) use value::*;
pub(crate) use vaults::configure as configure_vaults;

use crate::prefix;
use serde_json::{Map, Value as Json};
use source::{Given, Origin};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use table::TABLE;

/// What the settings are read from.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// Flags, in order: as written, the setting's name, and the value.
    pub(crate) flags: Vec<Flag>,
    /// The environment.
    pub(crate) environment: BTreeMap<String, String>,
    /// The settings file, in TOML.
    pub(crate) file: Option<PathBuf>,
    /// The settings file, in the format of kong.conf.
    pub(crate) kong_conf: Option<PathBuf>,
    /// Whether Kong's assumptions count where nothing is said.
    pub(crate) as_kong: bool,
    /// Whether references to secrets count as absent, so that no vault is asked.
    pub(crate) without_secrets: bool,
}

/// A flag that gives a setting its value.
#[derive(Debug, Clone)]
pub(crate) struct Flag {
    /// What an error calls it: `--config`, or `--set workers`.
    pub(crate) written: String,
    /// The setting.
    pub(crate) name: String,
    /// Its value.
    pub(crate) value: String,
}

/// Valid settings, with warnings about them.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The settings.
    pub(crate) settings: Settings,
    /// The names of those that were given a value.
    pub(crate) given: Vec<&'static str>,
    /// Warnings about settings without effect.
    pub(crate) warnings: Vec<String>,
    /// Every setting as the Admin API shows it, without secrets.
    pub(crate) shown: Map<String, Json>,
}

/// Reads the settings; fails with every problem at once.
pub(crate) fn load(sources: Sources) -> Result<Loaded, Vec<Problem>> {
    let Gathered { given, shown, mut warnings, mut problems } = gather(sources);
    match read(&given, &mut problems, &mut warnings) {
        Some(settings) if problems.is_empty() => {
            Ok(Loaded { settings, given: given.names(), warnings, shown })
        }
        _ => Err(problems),
    }
}

/// The settings without the values that have problems, for a check of what else is wrong.
pub(crate) fn load_good_ones(sources: Sources) -> Option<Loaded> {
    let Gathered { mut given, shown, warnings, mut problems } = gather(sources);
    given.leave_out(&problems);
    problems.clear();
    let settings = Settings::read(&given, &mut problems).or_else(|| {
        given.leave_out(&problems);
        Settings::read(&given, &mut problems)
    })?;
    Some(Loaded { settings, given: given.names(), warnings, shown })
}

/// What all sources together say.
struct Gathered {
    given: Given,
    shown: Map<String, Json>,
    warnings: Vec<String>,
    problems: Vec<Problem>,
}

fn gather(sources: Sources) -> Gathered {
    let (mut given, mut problems, mut warnings) = (Given::default(), Vec::new(), Vec::new());
    if let Some((path, text)) = read_file(sources.kong_conf, &mut problems) {
        warnings.extend(given.kong_conf(path, &text, &mut problems));
    }
    if let Some((path, text)) = read_file(sources.file, &mut problems) {
        given.file(path, &text, &mut problems);
    }
    warnings.extend(given.kong_environment(&sources.environment, &mut problems));
    given.weir_environment(&sources.environment, &mut problems);
    for Flag { written, name, value } in &sources.flags {
        warnings.extend(given.flag(written, name, value, &mut problems));
    }
    if sources.as_kong {
        assume_as_kong(&mut given);
    }
    // References are shown, and not what they lead to.
    let shown = TABLE.iter().map(|it| (it.name.to_owned(), given.shown(it))).collect();
    match sources.without_secrets && !given.refers("prefix") {
        true => given.leave_out_references(),
        false => vaults::resolve(&mut given, &mut problems),
    }
    Gathered { given, shown, warnings, problems }
}

/// Reads what is given, and checks it.
fn read(given: &Given, problems: &mut Vec<Problem>, warnings: &mut Vec<String>) -> Option<Settings> {
    let mut settings = Settings::read(given, problems)?;
    if given.is_directive("ssl_ciphers") {
        settings.ssl_cipher_suite = CipherSuite::Custom;
    }
    resolve_listeners(&mut settings, given, problems);
    check(&settings, given, problems, warnings);
    role::check(&settings, given, problems);
    warnings.extend(role::warning(&settings));
    warnings.extend(role::without_effect(&settings, given));
    role::apply(&mut settings);
    Some(settings)
}

fn read_file(path: Option<PathBuf>, problems: &mut Vec<Problem>) -> Option<(PathBuf, String)> {
    let path = path?;
    match std::fs::read_to_string(&path) {
        Ok(text) => Some((path, text)),
        Err(error) => {
            let message = format!("cannot be read: {error}");
            problems.push(Problem { origin: Origin::File(path, 0), message });
            None
        }
    }
}

/// What Kong assumes where nothing is said: its folder, if this process can use it, and PostgreSQL, if its host is named.
fn assume_as_kong(given: &mut Given) {
    if prefix::is_usable(Path::new(KONG_PREFIX)) {
        given.assume("prefix", KONG_PREFIX);
    }
    let is_declared = given.has("declarative_config") || given.has("declarative_config_string");
    if given.has("pg_host") && !is_declared {
        given.assume("database", "postgres");
    }
}

/// Kong's own folder.
const KONG_PREFIX: &str = "/usr/local/kong";

/// Looks up the host names of listeners.
fn resolve_listeners(settings: &mut Settings, given: &Given, problems: &mut Vec<Problem>) {
    let listeners = [
        ("proxy_listen", &mut settings.proxy_listen.0),
        ("stream_listen", &mut settings.stream_listen.0),
        ("admin_listen", &mut settings.admin_listen.0),
        ("admin_gui_listen", &mut settings.admin_gui_listen.0),
        ("status_listen", &mut settings.status_listen.0),
        ("cluster_listen", &mut settings.cluster_listen.0),
        ("apisix_proxy_listen", &mut settings.apisix_proxy_listen.0),
        ("apisix_admin_listen", &mut settings.apisix_admin_listen.0),
    ];
    for (name, listeners) in listeners {
        let failed = listeners.iter_mut().filter_map(|listen| listen.resolve().err());
        let problem = |error| Problem { origin: given.origin(name), message: format!("{name}: {error}") };
        problems.extend(failed.map(problem));
    }
}

/// Room for a response of 8 MiB that a plugin replaces, and for the copy that it makes.
const MIN_BODIES_SIZE: u64 = 16 * 1024 * 1024;

/// Warns if bodies within the limits of plugins may never fit into memory.
fn short_of_memory(settings: &Settings) -> Option<String> {
    let size = settings.mem_bodies_size.0;
    (1..MIN_BODIES_SIZE).contains(&size).then(|| {
        format!(
            "mem_bodies_size: {size} bytes are less than 16m: a body that a plugin reads may be larger, of a request up \
             to 1 MiB, of a response up to 8 MiB, and is then answered 503; write 16m or more, or 0 for no limit"
        )
    })
}

/// Warns of pairs in `port_maps` whose port no listener has.
fn mapped_in_vain(settings: &Settings) -> Option<String> {
    let lists = [&settings.proxy_listen.0, &settings.stream_listen.0, &settings.apisix_proxy_listen.0];
    let ports: Vec<u16> =
        lists.into_iter().flatten().filter_map(|listen| listen.address.ip()).map(|at| at.port()).collect();
    // A port 0 is known only once the listener is open.
    let is_in_vain = |map: &&PortMap| !ports.contains(&map.own) && !ports.contains(&0);
    let in_vain: Vec<_> = settings.port_maps.iter().filter(is_in_vain).collect();
    let shown: Vec<_> = in_vain.iter().map(|map| format!("{}:{}", map.public, map.own)).collect();
    (!shown.is_empty() && !ports.is_empty()).then(|| {
        format!(
            "port_maps: no listener of proxy_listen or stream_listen has the port of {}, which has no effect; write \
             `PUBLIC:PORT` with the port of a listener",
            shown.join(", ")
        )
    })
}

/// Checks rules across settings.
fn check(settings: &Settings, given: &Given, problems: &mut Vec<Problem>, warnings: &mut Vec<String>) {
    if settings.declarative_config.is_some() && settings.declarative_config_string.is_some() {
        problems.push(Problem {
            origin: given.origin("declarative_config_string"),
            message: "declarative_config_string: `declarative_config` is given as well: leave one out"
                .to_owned(),
        });
    }
    problems.extend(beside_etcd(settings, given));
    warnings.extend(unread(settings));
    warnings.extend(short_of_memory(settings));
    warnings.extend(mapped_in_vain(settings));
    check_ciphers(settings, given, problems, warnings);
    check_protocols(settings, given, problems);
    problems.extend(given.contradictions());
    for (one, is_given, other) in [
        ("ssl_cert", settings.ssl_cert.is_some(), "ssl_cert_key"),
        ("ssl_cert_key", settings.ssl_cert_key.is_some(), "ssl_cert"),
        ("admin_ssl_cert", settings.admin_ssl_cert.is_some(), "admin_ssl_cert_key"),
        ("admin_ssl_cert_key", settings.admin_ssl_cert_key.is_some(), "admin_ssl_cert"),
        ("status_ssl_cert", settings.status_ssl_cert.is_some(), "status_ssl_cert_key"),
        ("status_ssl_cert_key", settings.status_ssl_cert_key.is_some(), "status_ssl_cert"),
        ("client_ssl_cert", settings.client_ssl_cert.is_some(), "client_ssl_cert_key"),
        ("client_ssl_cert_key", settings.client_ssl_cert_key.is_some(), "client_ssl_cert"),
        ("apisix_etcd_ssl_cert", settings.apisix_etcd_ssl_cert.is_some(), "apisix_etcd_ssl_cert_key"),
        ("apisix_etcd_ssl_cert_key", settings.apisix_etcd_ssl_cert_key.is_some(), "apisix_etcd_ssl_cert"),
        ("apisix_etcd_user", settings.apisix_etcd_user.is_some(), "apisix_etcd_password"),
        ("apisix_etcd_password", settings.apisix_etcd_password.is_some(), "apisix_etcd_user"),
    ] {
        let other_is_given = given.names().contains(&other);
        if is_given && !other_is_given {
            problems.push(Problem {
                origin: given.origin(one),
                message: format!("{one}: give `{other}` with it"),
            });
        }
    }
}

/// The settings that name another place of the configuration than etcd.
fn beside_etcd(settings: &Settings, given: &Given) -> Option<Problem> {
    settings.apisix_etcd.as_ref()?;
    let database = settings.database.filter(|database| *database != Database::Off).map(|_| "database");
    let file = settings.declarative_config.as_ref().map(|_| "declarative_config");
    let text = settings.declarative_config_string.as_ref().map(|_| "declarative_config_string");
    let name = database.or(file).or(text)?;
    Some(Problem {
        origin: given.origin(name),
        message: format!("{name}: the configuration is in etcd, as `apisix_etcd` says: leave one out"),
    })
}

/// Warns of a declarative configuration beside a database, which holds the configuration.
fn unread(settings: &Settings) -> Option<String> {
    let database = match settings.database? {
        Database::Off => return None,
        Database::Sqlite => "sqlite",
        Database::Postgres => "postgres",
    };
    let (name, file) = match (&settings.declarative_config, &settings.declarative_config_string) {
        (Some(file), _) => ("declarative_config", file.display().to_string()),
        (None, Some(_)) => ("declarative_config_string", "FILE".to_owned()),
        (None, None) => return None,
    };
    Some(format!(
        "{name} is not read, as database={database} holds the configuration: bring it in with `weir config db_import \
         {file}`, or set database=off"
    ))
}

fn check_ciphers(
    settings: &Settings,
    given: &Given,
    problems: &mut Vec<Problem>,
    warnings: &mut Vec<String>,
) {
    let (ciphers, custom) = (&settings.ssl_ciphers, settings.ssl_cipher_suite == CipherSuite::Custom);
    if custom && ciphers.offered.is_empty() {
        problems.push(Problem {
            origin: given.origin("ssl_cipher_suite"),
            message: "ssl_cipher_suite: `custom` needs `ssl_ciphers` with it".to_owned(),
        });
    }
    if !custom && given.names().contains(&"ssl_ciphers") {
        warnings.push("ssl_ciphers is not read, as `ssl_cipher_suite` is not `custom`".to_owned());
    } else if !ciphers.left_out.is_empty() {
        warnings.push(format!(
            "ssl_ciphers: {} are not offered: only suites with ECDHE and authenticated encryption are implemented, and \
             those of TLS 1.3 always are",
            ciphers.left_out.join(", ")
        ));
    }
}

/// Checks that no listener speaks a version of TLS that its own directive leaves out.
fn check_protocols(settings: &Settings, given: &Given, problems: &mut Vec<Problem>) {
    if !settings.ssl_protocols.v1_2 || settings.ssl_cipher_suite == CipherSuite::Modern {
        return;
    }
    let with_tls = |listeners: &[Listen]| listeners.iter().any(|listen| listen.ssl);
    problems.extend(given.too_many_protocols(|block| match block {
        "stream" | "sproxy" => with_tls(&settings.stream_listen.0),
        "admin" => with_tls(&settings.admin_listen.0),
        "admin_gui" => with_tls(&settings.admin_gui_listen.0),
        "status" => with_tls(&settings.status_listen.0),
        _ => false,
    }));
}

#[cfg(test)]
mod tests;
