//! The types of settings' values, each parsed from the text that kong.conf would hold.

mod amounts;
mod etcd;
mod gui;
mod http_url;
mod otlp;
mod postgres;
mod secrets;
mod shared_dicts;
mod tracing;
mod vaults;

pub(crate) use amounts::{Bytes, CacheSize, HeaderBuffers, Milliseconds};
pub(crate) use etcd::{EtcdEndpoints, Keyring};
pub(crate) use gui::{BasePath, PageUrl};
pub(crate) use http_url::HttpUrl;
pub(crate) use otlp::{ExportInterval, SecretHeaders};
pub(crate) use postgres::{PgHosts, PgPorts};
pub(crate) use secrets::{DeclarativeText, KeyFile, Password};
pub(crate) use shared_dicts::SharedDicts;
pub(crate) use tracing::{Fraction, TracingInstrumentations};
pub(crate) use vaults::EnabledVaults;

use serde_json::Value as Json;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use weir_model::Uuid;
use weir_proxy::Network;

/// A type of value: its name in the documentation, and its parser.
pub(crate) trait Value: Sized {
    /// The name of the type in the documentation.
    const KIND: &'static str;
    /// Parses a trimmed text. The error says what was expected.
    fn parse(text: &str) -> Result<Self, String>;
    /// Parses a text as it was given.
    fn read(text: &str) -> Result<Self, String> {
        Self::parse(text.trim())
    }
    /// A valid text as `GET /` of the Admin API shows it.
    fn shown(text: &str) -> Json {
        text.trim().into()
    }
}

/// What is shown in place of a secret.
pub(crate) const SECRET: &str = "******";

/// A number as a number, not as text.
fn shown_number(text: &str) -> Json {
    text.trim().parse::<u64>().map_or(Json::Null, Json::from)
}

/// Declares an enumeration of single words.
macro_rules! words {
    ($($(#[$meta:meta])* $name:ident: $kind:literal { $($variant:ident = $word:literal $(| $also:literal)*),+ $(,)? })+) => { $(
        $(#[$meta])*
        #[allow(missing_docs)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum $name { $($variant),+ }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($name::$variant => $word),+ })
            }
        }

        impl Value for $name {
            const KIND: &'static str = $kind;
            fn parse(text: &str) -> Result<Self, String> {
                match text.to_ascii_lowercase().as_str() {
                    $($word $(| $also)* => Ok($name::$variant),)+
                    _ => Err(format!("`{text}` is not one of {}", [$(concat!("`", $word, "`")),+].join(", "))),
                }
            }
        }
    )+ };
}

words! {
    /// Where the configuration lives.
    Database: "`off`, `sqlite` or `postgres`" { Off = "off", Sqlite = "sqlite", Postgres = "postgres" }
    /// What a node does in a fleet.
    Role: "`traditional`, `control_plane` or `data_plane`" {
        Traditional = "traditional", ControlPlane = "control_plane", DataPlane = "data_plane",
    }
    /// How the nodes of a fleet verify each other.
    ClusterMtls: "`shared` or `pki`" { Shared = "shared", Pki = "pki" }
    /// Whether a control plane asks if the certificates of data planes were revoked.
    ClusterOcsp: "`on`, `off` or `optional`" { On = "on", Off = "off", Optional = "optional" }
    /// How much is logged; each level includes the ones that follow it.
    LogLevel: "`debug`, `info`, `notice`, `warn`, `error`, `crit`, `alert` or `emerg`" {
        Debug = "debug", Info = "info", Notice = "notice", Warn = "warn", Error = "error",
        Crit = "crit", Alert = "alert", Emerg = "emerg",
    }
    /// How the router orders routes.
    RouterFlavor: "`traditional_compatible`, `traditional` or `expressions`" {
        TraditionalCompatible = "traditional_compatible", Traditional = "traditional", Expressions = "expressions",
    }
    /// Which responses have `Server-Timing`.
    TimedResponses: "`off`, `on_request` or `always`" { Off = "off", OnRequest = "on_request", Always = "always" }
    /// Which requests analytics keep in full.
    SampledRequests: "`off`, `errors` or `all`" { Off = "off", Errors = "errors", All = "all" }
    /// Whether Lua of a configuration runs.
    UntrustedLua: "`sandbox`, `on` or `off`" { Sandbox = "sandbox", On = "on", Off = "off" }
    /// The shape of an access log's lines.
    AccessLogFormat: "`combined` or `json`" { Combined = "combined", Json = "json" }
    /// The cipher suites offered to clients.
    CipherSuite: "`modern`, `intermediate`, `old` or `custom`" {
        Modern = "modern", Intermediate = "intermediate", Old = "old", Custom = "custom",
    }
    /// The content types of errors.
    ErrorContentType: "`application/json`, `application/xml`, `text/html` or `text/plain`" {
        Json = "application/json", Xml = "application/xml", Html = "text/html", Plain = "text/plain",
    }
    /// The protocol of a HashiCorp Vault.
    HcvProtocol: "`http` or `https`" { Http = "http", Https = "https" }
    /// The version of its secrets engine.
    KvVersion: "`v1` or `v2`" { V1 = "v1", V2 = "v2" }
    /// How the node proves to it who it is.
    HcvAuthMethod: "`token`, `kubernetes` or `approle`" {
        Token = "token", Kubernetes = "kubernetes", AppRole = "approle",
    }
    /// A kind of DNS record that names are looked up by.
    DnsRecord: "`LAST`, `SRV`, `A`, `AAAA` or `CNAME`" { Last = "last", Srv = "srv", A = "a", Aaaa = "aaaa", Cname = "cname" }
}

impl Value for bool {
    const KIND: &'static str = "`on` or `off`";
    fn parse(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "on" | "true" | "yes" => Ok(true),
            "off" | "false" | "no" => Ok(false),
            _ => Err(format!("`{text}` is neither `on` nor `off`")),
        }
    }
    fn shown(text: &str) -> Json {
        Self::read(text).map_or(Json::Null, Json::from)
    }
}

impl Value for u32 {
    const KIND: &'static str = "number";
    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("`{text}` is not a whole number from 0 to {}", u32::MAX))
    }
    fn shown(text: &str) -> Json {
        shown_number(text)
    }
}

impl Value for u16 {
    const KIND: &'static str = "port";
    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("`{text}` is not a port from 0 to {}", u16::MAX))
    }
    fn shown(text: &str) -> Json {
        shown_number(text)
    }
}

impl Value for String {
    const KIND: &'static str = "text";
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl Value for PathBuf {
    const KIND: &'static str = "path";
    fn parse(text: &str) -> Result<Self, String> {
        Ok(PathBuf::from(text))
    }
}

impl<T: Value> Value for Option<T> {
    const KIND: &'static str = T::KIND;
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { T::parse(text).map(Some) }
    }
    fn read(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() { Ok(None) } else { T::read(text).map(Some) }
    }
    fn shown(text: &str) -> Json {
        if text.trim().is_empty() { Json::Null } else { T::shown(text) }
    }
}

impl<T: Value> Value for Vec<T> {
    const KIND: &'static str = T::KIND;
    fn parse(text: &str) -> Result<Self, String> {
        text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(T::parse).collect()
    }
    fn shown(text: &str) -> Json {
        text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(T::shown).collect()
    }
}

impl Value for Uuid {
    const KIND: &'static str = "UUID";
    fn parse(text: &str) -> Result<Self, String> {
        let error = || format!("`{text}` is not a UUID: write one as `uuidgen` prints it");
        Some(text).filter(|text| text.len() == 36).and_then(|text| text.parse().ok()).ok_or_else(error)
    }
}

/// A listener's port, and the port by which clients reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PortMap {
    pub(crate) public: u16,
    pub(crate) own: u16,
}

impl Value for PortMap {
    const KIND: &'static str = "pairs of a public port and a listener's (`80:8000, 443:8443`)";
    fn parse(text: &str) -> Result<Self, String> {
        let port = |text: &str| text.parse().ok().filter(|port| *port > 0);
        let ports = text.split_once(':').and_then(|(public, own)| Some((port(public)?, port(own)?)));
        let map = ports.map(|(public, own)| PortMap { public, own });
        map.ok_or_else(|| {
            format!("`{text}` is not a pair of ports: write the public one first, as in `80:8000`")
        })
    }
}

/// A file of text that is read at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextFile(pub(crate) String);

impl Value for TextFile {
    const KIND: &'static str = "path";
    fn parse(text: &str) -> Result<Self, String> {
        std::fs::read_to_string(text).map(TextFile).map_err(|error| format!("{text} cannot be read: {error}"))
    }
}

/// How many workers serve traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Workers(pub(crate) usize);

impl Value for Workers {
    const KIND: &'static str = "`auto` or a number";
    fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Workers(std::thread::available_parallelism().map_or(1, usize::from)));
        }
        match text.parse() {
            Ok(n @ 1..=1024) => Ok(Workers(n)),
            _ => Err(format!("`{text}` is neither `auto` nor a number from 1 to 1024")),
        }
    }
}

/// A number, or as many as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AutoOr(pub(crate) Option<u32>);

impl Value for AutoOr {
    const KIND: &'static str = "`auto` or a number";
    fn parse(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "auto" => Ok(AutoOr(None)),
            Ok(number @ 1..) => Ok(AutoOr(Some(number))),
            _ => Err(format!("`{text}` is neither `auto` nor a number from 1 to {}", u32::MAX)),
        }
    }
}

impl Value for Network {
    const KIND: &'static str = "addresses and networks (`10.0.0.0/8`)";
    fn parse(text: &str) -> Result<Self, String> {
        let error =
            || format!("`{text}` is not an IP address or a network such as `10.0.0.0/8` or `fd00::/8`");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(longest), str::parse).map_err(|_| error())?;
        if prefix > longest { Err(error()) } else { Ok(Network { address, prefix }) }
    }
}

/// The header that names the real client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RealIpHeader(pub(crate) String);

impl Value for RealIpHeader {
    const KIND: &'static str = "name of a header, or `proxy_protocol`";
    fn parse(text: &str) -> Result<Self, String> {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if !text.is_empty() && text.bytes().all(is_token) {
            Ok(RealIpHeader(text.to_owned()))
        } else {
            Err(format!("`{text}` cannot be the name of a header: write it as `X-Real-IP`"))
        }
    }
}

/// A trusted peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trusted {
    /// Clients with these addresses.
    Network(Network),
    /// Clients of Unix sockets.
    Unix,
}

impl Value for Trusted {
    const KIND: &'static str = "addresses and networks (`10.0.0.0/8`), or `unix:`";
    fn parse(text: &str) -> Result<Self, String> {
        if text == "unix:" { Ok(Trusted::Unix) } else { Network::parse(text).map(Trusted::Network) }
    }
}

/// A name server's address; port 53 unless another is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameServer(pub(crate) SocketAddr);

impl Value for NameServer {
    const KIND: &'static str = "addresses (`10.0.0.2`, `10.0.0.2:5353`)";
    fn parse(text: &str) -> Result<Self, String> {
        let with_port = text.parse::<SocketAddr>().ok();
        let address = with_port.or_else(|| text.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 53)));
        address.map(NameServer).ok_or_else(|| format!("`{text}` is not an IP address with or without a port"))
    }
}

/// The target of the session log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionLog(pub(crate) LogTarget);

impl Value for SessionLog {
    const KIND: &'static str = LogTarget::KIND;
    /// Kong's value also names the format, of which there is one.
    fn parse(text: &str) -> Result<Self, String> {
        LogTarget::parse(text.strip_suffix(" basic").unwrap_or(text).trim_end()).map(SessionLog)
    }
}

/// The target of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LogTarget {
    /// Nowhere.
    Off,
    /// To a file, `/dev/stdout` and `/dev/stderr` included.
    Path(PathBuf),
}

impl Value for LogTarget {
    const KIND: &'static str = "`off` or a path";
    fn parse(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(LogTarget::Off);
        }
        // Kong names nginx's format behind the path.
        let formats = [" combined", " kong_log_format"];
        let text = formats.iter().find_map(|format| text.strip_suffix(format)).unwrap_or(text).trim_end();
        if text.contains(char::is_whitespace) {
            return Err(format!(
                "`{text}` is more than a path: name the format with `proxy_access_log_format`"
            ));
        }
        Ok(LogTarget::Path(PathBuf::from(text)))
    }
}

/// The versions of TLS offered to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TlsVersions {
    /// TLS 1.2.
    pub(crate) v1_2: bool,
    /// TLS 1.3.
    pub(crate) v1_3: bool,
}

impl Value for TlsVersions {
    const KIND: &'static str = "`TLSv1.2`, `TLSv1.3` or both";
    fn parse(text: &str) -> Result<Self, String> {
        let mut versions = TlsVersions { v1_2: false, v1_3: false };
        for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
            match word {
                "TLSv1.2" => versions.v1_2 = true,
                "TLSv1.3" => versions.v1_3 = true,
                _ => return Err(format!("`{word}` is not spoken here: leave only `TLSv1.2` and `TLSv1.3`")),
            }
        }
        if versions.v1_2 || versions.v1_3 {
            Ok(versions)
        } else {
            Err("name `TLSv1.2`, `TLSv1.3` or both".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[track_caller]
    pub(super) fn reads<T: Value + fmt::Debug + PartialEq>(text: &str, expected: T) {
        assert_eq!(T::parse(text), Ok(expected), "{text}");
    }

    #[track_caller]
    pub(super) fn refuses<T: Value + fmt::Debug>(text: &str) {
        assert!(T::parse(text).is_err(), "{text} gave {:?}", T::parse(text));
    }

    #[test]
    fn networks() {
        reads("10.1.2.3", Network { address: [10, 1, 2, 3].into(), prefix: 32 });
        reads("::/0", Network { address: std::net::Ipv6Addr::UNSPECIFIED.into(), prefix: 0 });
        for text in ["10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0/8", "unix:", "example.com"] {
            refuses::<Network>(text);
        }
    }

    #[test]
    fn lists_may_have_spaces_and_be_empty() {
        reads(" a , b,", vec!["a".to_owned(), "b".to_owned()]);
        reads("", Vec::<String>::new());
        reads(
            "1.1.1.1, 127.0.0.1:5353",
            vec![NameServer(([1, 1, 1, 1], 53).into()), NameServer(([127, 0, 0, 1], 5353).into())],
        );
    }

    #[test]
    fn words_are_case_insensitive_and_named_in_the_error() {
        reads("LAST,SRV", vec![DnsRecord::Last, DnsRecord::Srv]);
        assert!(LogLevel::parse("loud").unwrap_err().contains("`notice`"));
        refuses::<bool>("maybe");
        refuses::<Workers>("0");
        refuses::<AutoOr>("0");
        reads("auto", AutoOr(None));
        reads("16384", AutoOr(Some(16384)));
        refuses::<TlsVersions>("TLSv1.1 TLSv1.2");
        refuses::<LogTarget>("/dev/stdout json");
        reads("/dev/stdout combined", LogTarget::Path(PathBuf::from("/dev/stdout")));
        refuses::<RealIpHeader>("X Real IP");
        refuses::<RealIpHeader>("");
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_too_strange_to_be_read(text in r"\PC{0,20}|[0-9]{1,20}(ms|[smhdkMg])?|[0-9.:/]{1,20}") {
            use super::super::listen::Listeners;
            let _ = (Duration::parse(&text), Bytes::parse(&text), Vec::<Network>::parse(&text), Workers::parse(&text));
            let _ = (Vec::<NameServer>::parse(&text), Listeners::parse(&text), TlsVersions::parse(&text));
        }

        #[test]
        fn a_network_is_read_as_it_is_written(address: IpAddr, bits in 0u8..=32) {
            let expected = Network { address, prefix: bits };
            proptest::prop_assert_eq!(Network::parse(&format!("{address}/{bits}")), Ok(expected));
        }
    }
}
