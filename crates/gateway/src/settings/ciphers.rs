//! Cipher suites by OpenSSL's names.
use super::value::Value;
use weir_net::tls::Cipher;

/// Cipher suites of TLS 1.2, the preferred one first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ciphers {
    /// The supported ones.
    pub(crate) offered: Vec<Cipher>,
    /// The unsupported ones.
    pub(crate) left_out: Vec<String>,
}

impl Value for Ciphers {
    const KIND: &'static str = "names as OpenSSL has them, separated by `:`";
    fn parse(text: &str) -> Result<Self, String> {
        let mut ciphers = Ciphers::default();
        for name in text.split([':', ',', ' ']).filter(|name| !name.is_empty()) {
            match Cipher::named(name) {
                Some(cipher) => ciphers.offered.push(cipher),
                None => ciphers.left_out.push(name.to_owned()),
            }
        }
        if ciphers.offered.is_empty() && !ciphers.left_out.is_empty() {
            let names: Vec<_> = Cipher::names().map(|name| format!("`{name}`")).collect();
            return Err(format!("none of these is spoken here: name some of {}", names.join(", ")));
        }
        Ok(ciphers)
    }
}

#[cfg(test)]
mod tests {
    use super::{Ciphers, Value};

    #[test]
    fn names_are_taken_in_order_and_others_kept_for_a_warning() {
        let ciphers = Ciphers::parse(
            "ECDHE-RSA-AES256-GCM-SHA384:DHE-RSA-AES128-SHA:ECDHE-ECDSA-AES128-GCM-SHA256:!aNULL",
        );
        let ciphers = ciphers.unwrap();
        assert_eq!(ciphers.offered.len(), 2);
        assert_eq!(ciphers.left_out, ["DHE-RSA-AES128-SHA", "!aNULL"]);
        assert_eq!(Ciphers::parse(""), Ok(Ciphers::default()));
        assert!(Ciphers::parse("AES128-SHA").unwrap_err().contains("`ECDHE-RSA-AES128-GCM-SHA256`"));
    }
}
