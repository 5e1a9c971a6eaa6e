//! References to secrets that a vault keeps, in the place of the secrets: `{vault://env/redis-password}`.
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::fmt;

/// How references begin.
const OPENING: &str = "{vault://";

/// A reference to a secret: `{vault://VAULT/RESOURCE}`, `{vault://VAULT/RESOURCE/KEY?option=value#VERSION}`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SecretReference {
    /// The name of a vault, or the prefix of a vault entity.
    pub vault: String,
    /// What the vault calls the secret.
    pub resource: String,
    /// The member of the JSON object that the secret is.
    pub key: Option<String>,
    /// Options for the vault.
    pub options: Vec<(String, String)>,
    /// Which of several versions of the secret.
    pub version: Option<u32>,
}

/// The options are left out, because some are secret.
impl fmt::Debug for SecretReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretReference({}/{})", self.vault, self.resource)
    }
}

/// Whether a text refers to a secret.
pub fn is_reference(text: &str) -> bool {
    text.starts_with(OPENING) && text.ends_with('}')
}

impl SecretReference {
    /// Reads a reference.
    ///
    /// # Errors
    /// Why the text is none, in Kong's words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let fail = |what: &str| Err(format!("{what} [{text}]"));
        let Some(url) = text.strip_prefix(OPENING).and_then(|rest| rest.strip_suffix('}')) else {
            return fail("not a reference");
        };
        let (url, version) = match url.split_once('#') {
            Some((url, version)) => (url, Some(version)),
            None => (url, None),
        };
        let version = match version.map(str::parse::<u32>).transpose() {
            Ok(version) => version,
            Err(_) => return fail("reference url has invalid version"),
        };
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let (vault, path) = match path.split_once('/') {
            _ if path.is_empty() || path.starts_with('/') => return fail("reference url is missing host"),
            None => return fail("reference url is missing path"),
            Some((_, "")) => return fail("reference url has empty path"),
            Some(parts) => parts,
        };
        let (resource, key) = resource_and_key(path);
        if resource.is_empty() {
            return fail("reference url has invalid path");
        }
        let options = query.split('&').filter_map(|pair| pair.split_once('='));
        let options = options.map(|(name, value)| (decoded(name), decoded(value))).collect();
        let (vault, resource, key) = (vault.to_owned(), decoded(resource), key.map(decoded));
        Ok(Self { vault, resource, key, options, version })
    }

    /// The value of an option.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(option, _)| option == name).map(|(_, value)| value.as_str())
    }
}

/// The last of several parts is a key, unless a slash follows it.
fn resource_and_key(path: &str) -> (&str, Option<&str>) {
    match (path.strip_suffix('/'), path.rsplit_once('/')) {
        (Some(resource), _) => (resource, None),
        (None, Some((resource, key))) => (resource, Some(key)),
        (None, None) => (path, None),
    }
}

/// A text with `%20` and the like decoded; what decodes to no UTF-8 stays as it is.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8().map_or_else(|_| text.to_owned(), Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> String {
        match SecretReference::parse(text) {
            Ok(read) => format!(
                "{} {} {:?} {:?} {:?}",
                read.vault,
                read.resource,
                read.key,
                read.version,
                read.option("prefix")
            ),
            Err(error) => error,
        }
    }

    #[test]
    fn references_are_read_as_kong_reads_them() {
        for (text, expected) in [
            ("{vault://env/my-secret}", "env my-secret None None None"),
            ("{vault://env/pg-creds/user}", "env pg-creds Some(\"user\") None None"),
            ("{vault://hcv/a/b/c}", "hcv a/b Some(\"c\") None None"),
            ("{vault://hcv/a/b/}", "hcv a/b None None None"),
            ("{vault://hcv/a%20b/c%2fd}", "hcv a b Some(\"c/d\") None None"),
            ("{vault://env/x%zz%}", "env x%zz% None None None"),
            ("{vault://env/x%+1}", "env x%+1 None None None"),
            ("{vault://env/x?prefix=A_&ttl=1#2}", "env x None Some(2) Some(\"A_\")"),
            ("vault://env/x", "not a reference [vault://env/x]"),
            ("{vault://}", "reference url is missing host [{vault://}]"),
            ("{vault:///x}", "reference url is missing host [{vault:///x}]"),
            ("{vault://env}", "reference url is missing path [{vault://env}]"),
            ("{vault://env/}", "reference url has empty path [{vault://env/}]"),
            ("{vault://env//x}", "reference url has invalid path [{vault://env//x}]"),
            ("{vault://env/x#a}", "reference url has invalid version [{vault://env/x#a}]"),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
