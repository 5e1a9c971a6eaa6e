//! The servers of PostgreSQL: hosts and their ports, as libpq's connection strings list them.
use super::{Json, Value, shown_number};

/// The port of a host for which none is listed.
const DEFAULT_PORT: u16 = 5432;

/// Hosts, in the order in which they are tried; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PgHosts(pub(crate) Vec<String>);

impl Value for PgHosts {
    const KIND: &'static str = "host, or several, separated by commas";
    fn parse(text: &str) -> Result<Self, String> {
        let hosts: Vec<_> = text.split(',').map(|host| host.trim().to_owned()).collect();
        match hosts.iter().any(String::is_empty) {
            true => Err(format!("`{text}` has an empty host: write hosts as `db-1, db-2`")),
            false => Ok(PgHosts(hosts)),
        }
    }
}

/// Ports: one for all hosts, or one for each; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PgPorts(pub(crate) Vec<u16>);

impl Value for PgPorts {
    const KIND: &'static str = "port, or one for each host, separated by commas";
    fn parse(text: &str) -> Result<Self, String> {
        let port = |text: &str| match text.trim() {
            "" => Ok(DEFAULT_PORT),
            text => u16::parse(text),
        };
        text.split(',').map(port).collect::<Result<_, _>>().map(PgPorts)
    }
    fn shown(text: &str) -> Json {
        if text.contains(',') { text.trim().into() } else { shown_number(text) }
    }
}

impl PgPorts {
    /// The port of each of so many hosts; none if the numbers differ.
    pub(crate) fn of(&self, hosts: usize) -> Option<Vec<u16>> {
        match &*self.0 {
            [port] => Some(vec![*port; hosts]),
            ports => (ports.len() == hosts).then(|| ports.to_vec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{reads, refuses};
    use super::*;

    #[test]
    fn hosts_and_ports_are_listed_as_for_libpq() {
        reads("db.internal", PgHosts(vec!["db.internal".to_owned()]));
        reads(
            "/run/postgresql,::1 , b",
            PgHosts(["/run/postgresql", "::1", "b"].map(str::to_owned).to_vec()),
        );
        for text in ["", ",", "a,,b", "a,"] {
            refuses::<PgHosts>(text);
        }
        reads("5433", PgPorts(vec![5433]));
        reads("5433, ,5434", PgPorts(vec![5433, DEFAULT_PORT, 5434]));
        for text in ["65536", "5432,x", "5432;5433"] {
            refuses::<PgPorts>(text);
        }
        assert_eq!([PgPorts::shown("5433"), PgPorts::shown("1,2")], [Json::from(5433), Json::from("1,2")]);
    }

    #[test]
    fn one_port_is_that_of_all_hosts() {
        assert_eq!(PgPorts(vec![1]).of(2), Some(vec![1, 1]));
        assert_eq!(PgPorts(vec![1, 2]).of(2), Some(vec![1, 2]));
        assert_eq!((PgPorts(vec![1, 2]).of(1), PgPorts(vec![1, 2]).of(3)), (None, None));
    }
}
