//! The metrics of a fleet: Kong's of both roles, and Weir's own.
use super::Cluster;
use super::tls::identity;
use crate::settings::Settings;
use std::fmt::Write;
use weir_cluster::control_plane::{Member, State};
use weir_cluster::data_plane::Link;

impl Cluster {
    /// In Prometheus' text format; nothing on a node that is in no fleet.
    pub(crate) fn metrics(&self, settings: &Settings) -> String {
        match self {
            Cluster::Alone => String::new(),
            Cluster::ControlPlane(fleet) => of_members(&fleet.members()),
            Cluster::DataPlane(link) => of_link(&link.now(), settings),
        }
    }
}

/// A metric of each data plane: its name, its type, what it says, and its value, if there is one.
type OfMember = (&'static str, &'static str, &'static str, fn(&Member) -> Option<f64>);

const OF_MEMBERS: [OfMember; 7] = [
    ("kong_data_plane_last_seen", "gauge", "When the data plane was seen last", |it| {
        Some(it.last_seen as f64)
    }),
    ("kong_data_plane_config_hash", "gauge", "The hash of what the data plane serves", |it| {
        u128::from_str_radix(&it.config_hash, 16).ok().map(|hash| hash as f64)
    }),
    ("weir_data_plane_up", "gauge", "Whether the data plane serves the newest configuration", |it| {
        Some(f64::from(u8::from(it.state == State::Connected)))
    }),
    ("weir_data_plane_lag_revisions", "gauge", "How many revisions the data plane lacks", |it| {
        it.lag.map(|lag| lag as f64)
    }),
    ("weir_data_plane_pushes_total", "counter", "How often the data plane was sent a configuration", |it| {
        Some(it.pushes as f64)
    }),
    ("weir_data_plane_pushed_bytes_total", "counter", "How many bytes these had", |it| {
        Some(it.pushed_bytes as f64)
    }),
    ("weir_data_plane_refusals_total", "counter", "How many of these the data plane refused", |it| {
        Some(it.refusals as f64)
    }),
];

fn of_members(members: &[Member]) -> String {
    let mut text = String::new();
    for (name, kind, help, value) in OF_MEMBERS {
        head(&mut text, name, kind, help);
        for member in members {
            if let Some(value) = value(member) {
                line(&mut text, name, &labels(member), value);
            }
        }
    }
    let name = "kong_data_plane_version_compatible";
    head(&mut text, name, "gauge", "Whether the data plane can be sent the configuration");
    for member in members {
        let labels = format!("{},kong_version=\"{}\"", labels(member), escaped(&member.version));
        line(&mut text, name, &labels, f64::from(u8::from(member.sync_status == "normal")));
    }
    text
}

fn of_link(link: &Link, settings: &Settings) -> String {
    let mut text = String::new();
    let expires = identity(settings).ok().and_then(|identity| identity.expires());
    for (name, kind, help, value) in [
        ("kong_data_plane_cluster_cert_expiry_timestamp", "gauge", "When cluster_cert ends", expires),
        (
            "weir_control_plane_connected",
            "gauge",
            "Whether there is a connection",
            Some(link.connected.into()),
        ),
        ("weir_control_plane_messages_total", "counter", "Messages received", Some(link.received as i64)),
        ("weir_control_plane_bytes_total", "counter", "Bytes received", Some(link.received_bytes as i64)),
    ] {
        head(&mut text, name, kind, help);
        value.into_iter().for_each(|value| line(&mut text, name, "", value as f64));
    }
    text
}

fn labels(member: &Member) -> String {
    let (hostname, ip) = (escaped(&member.hostname), escaped(&member.ip));
    format!("node_id=\"{}\",hostname=\"{hostname}\",ip=\"{ip}\"", member.id)
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

// Writing to a String cannot fail.
fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(text: &mut String, name: &str, labels: &str, value: f64) {
    let _ = match labels {
        "" => writeln!(text, "{name} {value}"),
        labels => writeln!(text, "{name}{{{labels}}} {value}"),
    };
}
