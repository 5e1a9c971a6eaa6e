//! The variables that Kubernetes sets for each Service of a pod's namespace. Those of a Service named `kong` or `weir` begin
//! like the variables of settings.
use super::source::declaration;
use std::net::{IpAddr, SocketAddr};

const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];

/// Whether a variable, named without `KONG_` or `WEIR_`, is about a Service and no setting.
pub(crate) fn is_service_link(name: &str, value: &str) -> bool {
    declaration(name).is_none() && has_form(name, value)
}

/// Whether the name and the value are of the form of such a variable, as in `port_80_tcp_addr` and `10.0.0.1`.
fn has_form(name: &str, value: &str) -> bool {
    let parts: Vec<&str> = name.split('_').collect();
    let is_port = |number: &str, protocol: &str| is_number(number) && PROTOCOLS.contains(&protocol);
    match parts.as_slice() {
        [.., "service", "host"] => value.parse::<IpAddr>().is_ok(),
        [.., "port"] if is_url(value) => true,
        [.., "port", number, protocol] if is_port(number, protocol) => is_url(value),
        [.., "port", number, protocol, "proto"] if is_port(number, protocol) => PROTOCOLS.contains(&value),
        [.., "port", number, protocol, "port"] if is_port(number, protocol) => is_number(value),
        [.., "port", number, protocol, "addr"] if is_port(number, protocol) => {
            value.parse::<IpAddr>().is_ok()
        }
        // A port's name may follow.
        parts => parts.windows(2).any(|pair| pair == ["service", "port"]) && is_number(value),
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(protocol, address)| {
        PROTOCOLS.contains(&protocol) && address.parse::<SocketAddr>().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_services_are_told_from_settings() {
        for (name, value) in [
            ("service_host", "10.96.0.9"),
            ("service_port", "8000"),
            ("service_port_proxy_tls", "8443"),
            ("port", "tcp://10.96.0.9:8000"),
            ("port_8000_tcp", "tcp://[fd00::9]:8000"),
            ("port_8000_tcp_proto", "tcp"),
            ("port_8000_tcp_port", "8000"),
            ("port_8000_tcp_addr", "fd00::9"),
            ("proxy_port_9000_udp", "udp://10.96.0.9:9000"),
            ("gateway_proxy_service_host", "10.96.0.9"),
        ] {
            assert!(is_service_link(name, value), "{name}={value}");
        }
        for (name, value) in [
            ("pg_port", "tcp://10.96.0.9:5432"),
            ("service_host", "localhost"),
            ("service_port", "many"),
            ("port", "8000"),
            ("admin_port", "8001"),
            ("port_8000_http", "tcp://10.96.0.9:8000"),
            ("port_8000_tcp_addr", "a.test"),
            ("proxy_lisen", "10.96.0.9:8000"),
            ("", ""),
        ] {
            assert!(!is_service_link(name, value), "{name}={value}");
        }
    }
}
