//! Why a node does not start.
use crate::prefix::PrefixError;
use crate::process_limit;
use crate::settings::LogTarget;
use crate::store::StoreError;
use std::fmt;
use std::io;
use weir_proxy::Address;

/// Why a node did not start.
#[derive(Debug)]
pub(crate) enum StartError {
    /// The errors in the declarative file.
    Configuration(Vec<String>),
    /// Plugins on disk cannot be loaded.
    Plugins(Vec<String>),
    /// The store of the configuration cannot be used.
    Store(StoreError),
    /// The node's folder cannot be used.
    Prefix(PrefixError),
    /// The data plane does not start.
    Proxy(weir_proxy::StartError),
    /// A certificate that the settings name cannot be used.
    Tls(weir_net::tls::TlsError),
    /// The node cannot take its part in the fleet.
    Cluster(weir_cluster::tls::TlsError),
    /// A listener's address cannot be listened on.
    Bind { name: &'static str, address: Address, error: io::Error },
    /// The system rejects the value of a setting.
    Setting { name: &'static str, value: String, error: io::Error },
    /// Another system call fails.
    System(io::Error),
    /// A signal stopped it before it had started.
    Stopped,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Configuration(errors) | StartError::Plugins(errors) => {
                f.write_str(&errors.join("\n"))
            }
            StartError::Store(error) => error.fmt(f),
            StartError::Prefix(error) => error.fmt(f),
            StartError::Proxy(error) => {
                error.fmt(f)?;
                match error {
                    weir_proxy::StartError::Listen(address, _, error) => {
                        f.write_str(refused_port(address, error))
                    }
                    weir_proxy::StartError::System(error) => f.write_str(process_limit::hint(error)),
                    _ => Ok(()),
                }
            }
            StartError::Bind { name, address, error } if error.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "{address} is in use: stop what listens there, or set another {name}")
            }
            StartError::Bind { name, address, error } => {
                write!(f, "{name}: {address}: {error}: give it another value{}", refused_port(address, error))
            }
            StartError::Tls(error) => error.fmt(f),
            StartError::Cluster(error) => error.fmt(f),
            StartError::Setting { name, value, error } => {
                write!(f, "{name}: {value}: {error}: give it another value")
            }
            StartError::System(error) => write!(f, "{error}{}", process_limit::hint(error)),
            StartError::Stopped => f.write_str("a signal stopped the node before it had started"),
        }
    }
}

/// The hint for a port that needs privileges.
fn refused_port(address: &Address, error: &io::Error) -> &'static str {
    let privileged = address.ip().is_some_and(|address| address.port() < 1024);
    if error.kind() == io::ErrorKind::PermissionDenied && privileged {
        "; ports below 1024 need the capability CAP_NET_BIND_SERVICE, or take one above"
    } else {
        ""
    }
}

impl StartError {
    /// A log cannot be opened.
    pub(crate) fn of_log(name: &'static str, target: &LogTarget, error: io::Error) -> StartError {
        let value = match target {
            LogTarget::Off => "off".to_owned(),
            LogTarget::Path(path) => path.display().to_string(),
        };
        StartError::Setting { name, value, error }
    }
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        StartError::System(error)
    }
}
