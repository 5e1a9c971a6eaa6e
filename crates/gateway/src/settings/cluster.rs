//! The values of a fleet's settings: certificates as files or text, addresses of control planes, labels.
use super::value::{SECRET, Value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use weir_cluster::connect::{Endpoint, ForwardProxy};

/// How many labels a data plane may have, as in Kong.
const MAX_LABELS: usize = 10;

/// The longest key or value of a label.
const MAX_LABEL_LEN: usize = 63;

/// What keys of labels must not begin with, because Kong's products use these.
const RESERVED_PREFIXES: [&str; 5] = ["kong", "konnect", "insomnia", "mesh", "kic"];

/// A certificate or a private key: the path of a PEM file, PEM itself, or base64 of PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pem(String);

impl Pem {
    /// The PEM text. The error repeats nothing that may be a key.
    pub(crate) fn text(&self) -> Result<String, String> {
        if is_pem(&self.0) {
            return Ok(self.0.clone());
        }
        let path = Path::new(&self.0);
        if path.is_file() {
            return std::fs::read_to_string(path)
                .map_err(|error| format!("{} cannot be read: {error}", path.display()));
        }
        let compact: String = self.0.split_whitespace().collect();
        let decoded = STANDARD.decode(compact).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        decoded.filter(|text| is_pem(text)).ok_or_else(|| match is_path(&self.0) {
            true => format!("{}: no such file: name one that holds PEM", self.0),
            false => "it is no file, no PEM and no base64 of PEM: write one of these".to_owned(),
        })
    }
}

fn is_pem(text: &str) -> bool {
    text.contains("-----BEGIN ")
}

fn is_path(text: &str) -> bool {
    text.starts_with(['/', '.'])
}

impl Value for Pem {
    const KIND: &'static str = "path, PEM, or base64 of PEM";
    fn parse(text: &str) -> Result<Self, String> {
        Ok(Pem(text.to_owned()))
    }
    fn shown(text: &str) -> Json {
        if is_path(text.trim()) { text.trim().into() } else { SECRET.into() }
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pem(…)")
    }
}

impl Value for Endpoint {
    const KIND: &'static str = "addresses (`host:port`)";
    fn parse(text: &str) -> Result<Self, String> {
        text.parse()
    }
}

/// The labels of a data plane.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Labels(pub(crate) BTreeMap<String, String>);

impl Value for Labels {
    const KIND: &'static str = "pairs (`region:eu, stage:test`)";
    fn parse(text: &str) -> Result<Self, String> {
        let mut labels = BTreeMap::new();
        for item in Vec::<String>::parse(text)? {
            let (key, value) = item
                .split_once(':')
                .ok_or_else(|| format!("`{item}` is not a pair: write it as `key:value`"))?;
            let (key, value) = (key.trim(), value.trim());
            check_label(key)?;
            check_label(value)?;
            if let Some(prefix) = RESERVED_PREFIXES.iter().find(|prefix| key.starts_with(**prefix)) {
                return Err(format!("`{key}`: keys that begin with `{prefix}` are reserved: choose another"));
            }
            labels.insert(key.to_owned(), value.to_owned());
        }
        match labels.len() {
            0..=MAX_LABELS => Ok(Labels(labels)),
            more => Err(format!("{more} labels are too many: write at most {MAX_LABELS}")),
        }
    }
    fn shown(text: &str) -> Json {
        Vec::<String>::shown(text)
    }
}

/// Letters, digits and, between them, `.`, `_`, `:` and `-`.
fn check_label(text: &str) -> Result<(), String> {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:-".contains(byte);
    let fits = bytes.len() <= MAX_LABEL_LEN && bytes.iter().all(is_inner);
    if fits && is_edge(bytes.first()) && is_edge(bytes.last()) {
        return Ok(());
    }
    Err(format!(
        "`{text}` cannot be in a label: write 1 to {MAX_LABEL_LEN} letters, digits, `.`, `_`, `:` and `-`, with a letter \
         or a digit at both ends"
    ))
}

impl Value for ForwardProxy {
    const KIND: &'static str = "`http://` or `https://`, `user:password@` if needed, host and port";
    fn parse(text: &str) -> Result<Self, String> {
        text.parse()
    }
    fn shown(_: &str) -> Json {
        SECRET.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_kongs() {
        let labels = Labels::parse("region:eu-west, Stage:a:b").unwrap().0;
        assert_eq!(labels["region"], "eu-west");
        assert_eq!(labels["Stage"], "a:b");
        assert_eq!(Labels::parse("").unwrap(), Labels::default());
        let eleven: Vec<_> = (0..11).map(|n| format!("k{n}:v")).collect();
        for wrong in
            ["region", "region:", ":eu", "-a:b", "a:b-", "kong-x:y", "kic:1", "a:ü", &eleven.join(",")]
        {
            assert!(Labels::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Labels::parse(&format!("{}:v", "k".repeat(64))).is_err());
        assert!(Labels::parse(&format!("{}:v", "k".repeat(63))).is_ok());
    }

    #[test]
    fn a_certificate_is_a_file_or_pem_or_base64_of_it() {
        let pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), pem).unwrap();
        for given in [pem.to_owned(), STANDARD.encode(pem), file.path().display().to_string()] {
            assert_eq!(Pem(given).text().as_deref(), Ok(pem));
        }
        assert!(Pem("/nowhere".to_owned()).text().unwrap_err().contains("/nowhere"));
        let error = Pem("hunter2".to_owned()).text().unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn addresses_of_control_planes() {
        let read = Vec::<Endpoint>::parse("cp-1:8005, [::1]:8006").unwrap();
        assert_eq!((read[0].host.as_str(), read[0].port), ("cp-1", 8005));
        assert_eq!((read[1].host.as_str(), read[1].port), ("::1", 8006));
        for wrong in ["cp", ":8005", "cp:0", "cp:x"] {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }
}
