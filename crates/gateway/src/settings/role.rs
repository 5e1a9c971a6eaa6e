//! The roles of a fleet's nodes: what each role demands of the settings, with Kong's words, and what it takes away.
use super::listen::Listeners;
use super::source::{Given, Problem};
use super::table::Settings;
use super::trusted_certificates::trusted_certificate_files;
use super::value::{ClusterMtls, Database, Role, Workers};

/// The shortest time after which a data plane that is gone is forgotten.
const MIN_PURGE_DELAY: u32 = 60;

/// The smallest limit of what a node accepts in one message.
const MIN_MAX_PAYLOAD: u32 = 4 << 20;

/// Checks the settings against their role.
pub(super) fn check(settings: &Settings, given: &Given, problems: &mut Vec<Problem>) {
    let mut refuse = |name: &str, message: &str| {
        problems.push(Problem { origin: given.origin(name), message: message.to_owned() });
    };
    if settings.role != Role::Traditional && settings.apisix_etcd.is_some() {
        let message = "apisix_etcd can only be used when role = \"traditional\": the nodes of a fleet get the \
                       configuration from their control plane; leave it out";
        refuse("apisix_etcd", message);
    }
    match settings.role {
        Role::Traditional => refuse_labels(settings, &mut refuse),
        Role::ControlPlane => {
            check_certificate(settings, &mut refuse);
            check_control_plane(settings, &mut refuse);
        }
        Role::DataPlane => {
            check_certificate(settings, &mut refuse);
            check_data_plane(settings, &mut refuse);
        }
    }
    if settings.cluster_data_plane_purge_delay < MIN_PURGE_DELAY {
        let message = "cluster_data_plane_purge_delay must be 60 or greater: write seconds";
        refuse("cluster_data_plane_purge_delay", message);
    }
    if settings.cluster_max_payload < MIN_MAX_PAYLOAD {
        refuse("cluster_max_payload", "cluster_max_payload must be 4194304 (4MB) or greater: write bytes");
    }
}

fn check_certificate(settings: &Settings, refuse: &mut impl FnMut(&str, &str)) {
    if settings.cluster_cert.is_none() || settings.cluster_cert_key.is_none() {
        let name = if settings.cluster_cert.is_none() { "cluster_cert" } else { "cluster_cert_key" };
        let message = "cluster certificate and key must be provided to use Hybrid mode: set cluster_cert and \
                       cluster_cert_key; `weir hybrid gen_cert` generates both";
        refuse(name, message);
    }
    let has_trusted = settings.role == Role::DataPlane
        && !trusted_certificate_files(&settings.lua_ssl_trusted_certificate).is_empty();
    if settings.cluster_mtls == ClusterMtls::Pki && settings.cluster_ca_cert.is_none() && !has_trusted {
        let message = "cluster_ca_cert must be specified when cluster_mtls = \"pki\": name the authority of the \
                       other side's certificate";
        refuse("cluster_ca_cert", message);
    }
}

fn refuse_labels(settings: &Settings, refuse: &mut impl FnMut(&str, &str)) {
    if !settings.cluster_dp_labels.0.is_empty() {
        let message = "cluster_dp_labels can only be used when role = \"data_plane\": leave it out";
        refuse("cluster_dp_labels", message);
    }
}

fn check_control_plane(settings: &Settings, refuse: &mut impl FnMut(&str, &str)) {
    if settings.admin_listen.0.is_empty() {
        let message = "admin_listen must be specified when role = \"control_plane\": write an address such as 127.0.0.1:8001";
        refuse("admin_listen", message);
    }
    if settings.cluster_listen.0.is_empty() {
        let message = "cluster_listen must be specified when role = \"control_plane\": write an address such as 0.0.0.0:8005";
        refuse("cluster_listen", message);
    }
    let is_declared = settings.declarative_config.is_some() || settings.declarative_config_string.is_some();
    if settings.database == Some(Database::Off) || settings.database.is_none() && is_declared {
        let message = "in-memory storage can not be used when role = \"control_plane\": set database=sqlite or \
                       database=postgres, and bring a declarative file in with `weir config db_import FILE`";
        refuse("database", message);
    }
    if settings.cluster_use_proxy {
        let message = "cluster_use_proxy can not be used when role = \"control_plane\": leave it out";
        refuse("cluster_use_proxy", message);
    }
    if !settings.cluster_dp_labels.0.is_empty() {
        let message = "cluster_dp_labels can not be used when role = \"control_plane\": leave it out";
        refuse("cluster_dp_labels", message);
    }
}

fn check_data_plane(settings: &Settings, refuse: &mut impl FnMut(&str, &str)) {
    if settings.proxy_listen.0.is_empty() {
        let message = "proxy_listen must be specified when role = \"data_plane\": write an address such as 0.0.0.0:8000";
        refuse("proxy_listen", message);
    }
    if !matches!(settings.database, None | Some(Database::Off)) {
        let message = "only in-memory storage can be used when role = \"data_plane\": set database=off, or leave it out";
        refuse("database", message);
    }
    if settings.cluster_control_plane.is_empty() {
        let message = "cluster_control_plane: name a control plane, as in `cp.example.com:8005`";
        refuse("cluster_control_plane", message);
    }
    if settings.cluster_use_proxy && settings.proxy_server.is_none() {
        let message = "cluster_use_proxy is turned on but no proxy_server is configured: set proxy_server to \
                       `http://host:port`";
        refuse("proxy_server", message);
    }
}

/// Warns of a protocol that is switched on without what it needs, as Kong does.
pub(super) fn warning(settings: &Settings) -> Option<String> {
    let lacks_rpc = settings.cluster_incremental_sync && !settings.cluster_rpc;
    lacks_rpc.then(|| {
        "cluster_incremental_sync has no effect, because cluster_rpc is off: switch both on".to_owned()
    })
}

/// Warnings of settings that were given and have no effect in the node's role.
pub(super) fn without_effect(settings: &Settings, given: &Given) -> Vec<String> {
    let (proxy, streams) = (&settings.proxy_listen.0, &settings.stream_listen.0);
    let listeners = [
        ("proxy_listen", proxy.is_empty(), Role::ControlPlane),
        ("stream_listen", streams.is_empty(), Role::ControlPlane),
        ("admin_listen", settings.admin_listen.0.is_empty(), Role::DataPlane),
        ("cluster_listen", settings.cluster_listen.0.is_empty(), Role::DataPlane),
        ("cluster_control_plane", settings.cluster_control_plane.is_empty(), Role::ControlPlane),
        ("cluster_control_plane", settings.cluster_control_plane.is_empty(), Role::Traditional),
    ];
    let is_idle =
        |(name, is_off, role): &(&str, bool, Role)| *role == settings.role && !is_off && given.has(name);
    let warning = |(name, ..): (&str, bool, Role)| {
        let origin = given.origin(name);
        format!("{origin}: {name} has no effect when role = \"{}\": leave it out", settings.role)
    };
    listeners.into_iter().filter(is_idle).map(warning).chain(metrics_twice(settings, given)).collect()
}

/// A control plane sends no metrics of its fleet.
fn metrics_twice(settings: &Settings, given: &Given) -> Option<String> {
    let is_idle = settings.role == Role::ControlPlane && settings.analytics_otlp_endpoint.is_some();
    is_idle.then(|| {
        format!(
            "{}: analytics_otlp_endpoint has no effect when role = \"control_plane\", because a collector would get each \
             request twice: set it on the data planes, which send their own",
            given.origin("analytics_otlp_endpoint")
        )
    })
}

/// Takes away what a node of this role does not have: a control plane does not proxy, and a data plane has neither an
/// Admin API nor a database.
pub(super) fn apply(settings: &mut Settings) {
    let off = || Listeners(Vec::new());
    match settings.role {
        Role::Traditional => {}
        Role::ControlPlane => {
            settings.proxy_listen = off();
            settings.stream_listen.0.clear();
            settings.apisix_proxy_listen = off();
            settings.apisix_admin_on_proxy = false;
            settings.workers = Workers(1);
        }
        Role::DataPlane => {
            settings.admin_listen = off();
            settings.admin_gui_listen = off();
            settings.apisix_admin = false;
            settings.database = Some(Database::Off);
        }
    }
    if settings.role != Role::ControlPlane {
        settings.cluster_listen = off();
    }
    settings.cluster_incremental_sync &= settings.cluster_rpc;
}
