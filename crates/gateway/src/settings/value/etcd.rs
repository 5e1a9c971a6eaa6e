//! Values that say how an etcd is reached and read.
use super::{SECRET, Value};
use axum::http::Uri;
use std::fmt;

/// The servers of an etcd, each as `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EtcdEndpoints(pub(crate) Vec<String>);

const DEFAULT_PORT: u16 = 2379;

impl Value for EtcdEndpoints {
    const KIND: &'static str = "URLs";
    fn parse(text: &str) -> Result<Self, String> {
        text.split(',').map(str::trim).map(endpoint).collect::<Result<_, _>>().map(EtcdEndpoints)
    }
}

impl fmt::Display for EtcdEndpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

fn endpoint(text: &str) -> Result<String, String> {
    // A URL with a password is not repeated.
    if text.contains('@') {
        return Err(
            "give the user as `apisix_etcd_user` and `apisix_etcd_password`, not in the URL".to_owned()
        );
    }
    let wrong = || format!("`{text}` is not a URL like `http://127.0.0.1:{DEFAULT_PORT}`");
    let url: Uri = text.parse().map_err(|_| wrong())?;
    let (scheme, host) = url.scheme_str().zip(url.host()).ok_or_else(wrong)?;
    if !matches!(scheme, "http" | "https") || !matches!(url.path(), "" | "/") || url.query().is_some() {
        return Err(wrong());
    }
    Ok(format!("{scheme}://{host}:{}", url.port_u16().unwrap_or(DEFAULT_PORT)))
}

/// The keys of APISIX's `data_encryption.keyring`, for AES with 128 bits. Debug shows none of them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Keyring(pub(crate) Vec<[u8; 16]>);

impl Value for Keyring {
    const KIND: &'static str = "keys";
    fn parse(text: &str) -> Result<Self, String> {
        let keys = text.split(',').map(|key| key.trim().as_bytes().try_into());
        let keys = keys.collect::<Result<_, _>>();
        keys.map(Keyring).map_err(|_| "write keys of 16 characters each, with commas between".to_owned())
    }
    fn shown(_: &str) -> serde_json::Value {
        SECRET.into()
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyring(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_urls_without_users() {
        let read = |text: &str| EtcdEndpoints::parse(text).map(|endpoints| endpoints.to_string());
        assert_eq!(read("http://a, https://b:1/"), Ok("http://a:2379, https://b:1".to_owned()));
        for wrong in ["a:2379", "ftp://a", "http://a/v3", "", "http://a,,http://b"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let refused = read("http://root:secret@a").unwrap_err();
        assert!(refused.contains("apisix_etcd_user") && !refused.contains("secret"), "{refused}");
    }

    #[test]
    fn keys_have_16_characters() {
        assert_eq!(
            Keyring::parse("0123456789abcdef , fedcba9876543210").map(|keyring| keyring.0.len()),
            Ok(2)
        );
        let refused = Keyring::parse("short").unwrap_err();
        assert!(!refused.contains("short"), "{refused}");
    }
}
