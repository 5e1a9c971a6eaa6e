//! References to secrets that a vault keeps, in the place of the secrets: `{vault://env/redis-password}`.
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::fmt;

/// How references begin.
const OPENING: &str = "{vault://";

/// What is wrong with a reference in a field whose rules it breaks, because it is not resolved there.
pub(crate) const NOT_RESOLVED: &str =
    "references to secrets do not work in this field; write ${NAME} in a file, to read the environment";

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

/// What is wrong with a text that was probably meant as a reference, and how to write it. It is not repeated, because it may
/// be the secret. As in Kong, such a text is accepted.
pub(crate) fn misspelling(text: &str) -> Option<String> {
    const FORM: &str = "write `{vault://VAULT/NAME}`";
    if is_reference(text) {
        let what = SecretReference::read(text).err()?;
        return Some(format!("{what}, so that it stands for no secret; {FORM}"));
    }
    let what = meant(text)?;
    // As in `Bearer {vault://env/key}`.
    let is_part = what == PRECEDED && !text.trim().starts_with('$');
    let whole = if is_part { ", and put the text before it into the secret" } else { "" };
    Some(format!(
        "{what}, so that it is no reference, and the text itself is used as the secret; {FORM}{whole}"
    ))
}

const PRECEDED: &str = "text precedes the reference";

/// Why a text is no reference that looks like one.
fn meant(text: &str) -> Option<&'static str> {
    let trimmed = text.trim();
    if is_reference(trimmed) {
        return Some("spaces surround the reference");
    }
    if let Some(rest) = trimmed.strip_prefix(OPENING) {
        let has_end = rest.contains('}');
        return Some(if has_end { "text follows the reference" } else { "the closing `}` is missing" });
    }
    if trimmed.contains(OPENING) {
        return Some(PRECEDED);
    }
    if trimmed.starts_with("vault://") {
        return Some("the opening `{` is missing");
    }
    let scheme = trimmed.strip_prefix('{')?.split_once([':', '/'])?.0.trim().to_ascii_lowercase();
    (strsim::osa_distance(&scheme, "vault") <= 1).then_some("`{vault://` is misspelt")
}

impl SecretReference {
    /// Reads a reference.
    ///
    /// # Errors
    /// Why the text is none, in Kong's words.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|what| format!("{what} [{text}]"))
    }

    fn read(text: &str) -> Result<Self, &'static str> {
        let Some(url) = text.strip_prefix(OPENING).and_then(|rest| rest.strip_suffix('}')) else {
            return Err("not a reference");
        };
        let (url, version) = match url.split_once('#') {
            Some((url, version)) => (url, Some(version)),
            None => (url, None),
        };
        let version = match version.map(str::parse::<u32>).transpose() {
            Ok(version) => version,
            Err(_) => return Err("reference url has invalid version"),
        };
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let (vault, path) = match path.split_once('/') {
            _ if path.is_empty() || path.starts_with('/') => return Err("reference url is missing host"),
            None => return Err("reference url is missing path"),
            Some((_, "")) => return Err("reference url has empty path"),
            Some(parts) => parts,
        };
        let (resource, key) = resource_and_key(path);
        if resource.is_empty() {
            return Err("reference url has invalid path");
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
    fn what_was_probably_meant_as_a_reference_is_found_and_not_repeated() {
        for (text, expected) in [
            ("{vault://env/hidden", "the closing `}` is missing"),
            (" {vault://env/hidden}", "spaces surround"),
            ("{vault://env/hidden}\n", "spaces surround"),
            ("{vault://env/hidden}}x", "text follows"),
            ("Bearer {vault://env/hidden}", "text precedes"),
            ("${vault://env/hidden}", "text precedes"),
            ("vault://env/hidden}", "the opening `{`"),
            ("{vault:/env/hidden}", "misspelt"),
            ("{vault:env/hidden}", "misspelt"),
            ("{vault/env/hidden}", "misspelt"),
            ("{Vault://env/hidden}", "misspelt"),
            ("{ vault://env/hidden}", "misspelt"),
            ("{vaults://env/hidden}", "misspelt"),
            ("{vualt://env/hidden}", "misspelt"),
            ("{vault://hidden}", "missing path"),
            ("{vault:///hidden}", "missing host"),
        ] {
            let found = misspelling(text).unwrap_or_else(|| panic!("{text}: nothing"));
            assert!(
                found.contains(expected) && found.contains("write `{vault://VAULT/NAME}`"),
                "{text}: {found}"
            );
            assert!(!found.contains("hidden"), "{found}");
        }
        for text in [
            "{vault://env/x}",
            "",
            "{",
            "secret",
            "{\"a\": 1}",
            "{value: 1}",
            "{vault}",
            "my-vault:/x",
            "{{ .x }}",
        ] {
            assert_eq!(misspelling(text), None, "{text}");
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
