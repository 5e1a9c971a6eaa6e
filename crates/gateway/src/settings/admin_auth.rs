//! The tokens of the Admin API, of which only hashes are stored.
use super::value::{SECRET, Value};
use sha2::{Digest, Sha256};
use std::fmt;
use std::fs;
use subtle::ConstantTimeEq;
use weir_model::Uuid;

/// The tokens of the Admin API; none if it has no authentication.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct AdminAuth {
    tokens: Vec<Token>,
}

/// A token, as far as it is known.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) name: String,
    pub(crate) role: TokenRole,
    sha256: [u8; 32],
}

/// What requests with a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenRole {
    ReadWrite,
    ReadOnly,
}

/// What marks a token that may only read.
const READ_ONLY: &str = "read_only";

impl AdminAuth {
    /// Whether the Admin API has no authentication.
    pub(crate) fn is_off(&self) -> bool {
        self.tokens.is_empty()
    }

    /// What is known of a token; none if it is invalid. Compares in constant time.
    pub(crate) fn find(&self, token: &str) -> Option<&Token> {
        let shown: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for token in &self.tokens {
            if bool::from(token.sha256.ct_eq(&shown)) {
                found = Some(token);
            }
        }
        found
    }
}

/// A random token, and the setting that makes it valid.
pub(crate) fn new_token(role: TokenRole) -> String {
    let token = format!("weir_{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let flag = if role == TokenRole::ReadOnly { format!(" {READ_ONLY}") } else { String::new() };
    format!("token:      {token}\nadmin_auth: {}{flag}\n", hash(&token))
}

/// The hash of a token, as the setting holds it.
fn hash(token: &str) -> String {
    let digest = Sha256::digest(token);
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

impl Value for AdminAuth {
    const KIND: &'static str = "`sha256:…` hashes, each perhaps with a name and a flag as in `ci=sha256:… read_only`, or a file of such lines";
    fn shown(text: &str) -> serde_json::Value {
        if text.trim().is_empty() { serde_json::Value::Null } else { SECRET.into() }
    }
    fn parse(text: &str) -> Result<Self, String> {
        if text.contains("sha256:") || text.is_empty() {
            return Ok(AdminAuth { tokens: tokens(text.split(','))? });
        }
        // The value may be a token that was written here by mistake, so no message repeats it.
        let lines = fs::read_to_string(text).map_err(|error| {
            format!("holds neither `sha256:…`, as `weir admin token` prints it, nor the path of a readable file: {error}")
        })?;
        match tokens(lines.lines().filter(|line| !line.trim_start().starts_with('#')))? {
            tokens if tokens.is_empty() => {
                Err("the file holds no token: add a line, as `weir admin token` prints it".to_owned())
            }
            tokens => Ok(AdminAuth { tokens }),
        }
    }
}

fn tokens<'t>(texts: impl Iterator<Item = &'t str>) -> Result<Vec<Token>, String> {
    let texts = texts.map(str::trim).filter(|text| !text.is_empty()).enumerate();
    let tokens: Vec<Token> = texts.map(|(index, text)| token(index + 1, text)).collect::<Result<_, _>>()?;
    for (index, token) in tokens.iter().enumerate() {
        if let Some(same) = tokens[..index].iter().position(|other| other.sha256 == token.sha256) {
            let (entry, same) = (index + 1, same + 1);
            return Err(format!(
                "entry {entry} has the hash of entry {same}: remove one, since a token has one name and one role"
            ));
        }
    }
    Ok(tokens)
}

fn token(number: usize, text: &str) -> Result<Token, String> {
    let (name, rest) = match text.split_once('=') {
        Some((name, rest)) => (name.trim().to_owned(), rest.trim()),
        None => (format!("token {number}"), text),
    };
    let (hash, flag) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let role = match flag.trim() {
        "" => Some(TokenRole::ReadWrite),
        READ_ONLY => Some(TokenRole::ReadOnly),
        _ => None,
    };
    let sha256 = hash.strip_prefix("sha256:").and_then(digest);
    let (role, sha256) = role.zip(sha256).ok_or_else(|| {
        format!(
            "entry {number} is not `sha256:` and 64 hexadecimal digits, perhaps with `{READ_ONLY}` behind them: \
             `weir admin token` makes one"
        )
    })?;
    Ok(Token { name, role, sha256 })
}

fn digest(digits: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

impl fmt::Debug for AdminAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tokens.iter().map(|token| &token.name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of<'a>(auth: &'a AdminAuth, token: &str) -> Option<&'a str> {
        auth.find(token).map(|token| token.name.as_str())
    }

    #[test]
    fn a_token_opens_under_its_name() {
        let text = format!("ci={}, {}", hash("one"), hash("two"));
        let auth = AdminAuth::parse(&text).unwrap();
        assert_eq!(name_of(&auth, "one"), Some("ci"));
        assert_eq!(name_of(&auth, "two"), Some("token 2"));
        assert_eq!(name_of(&auth, "three"), None);
        assert_eq!(name_of(&auth, ""), None);
        assert!(!auth.is_off());
        assert!(AdminAuth::parse("").unwrap().is_off());
    }

    #[test]
    fn a_new_token_is_opened_by_what_is_printed_with_it() {
        for role in [TokenRole::ReadWrite, TokenRole::ReadOnly] {
            let printed = new_token(role);
            let value = |name: &str| printed.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
            let auth = AdminAuth::parse(value("admin_auth:")).unwrap();
            assert_eq!(auth.find(value("token:")).map(|token| token.role), Some(role));
            assert_ne!(printed, new_token(role));
        }
    }

    #[test]
    fn the_hash_is_that_of_the_standard() {
        let expected = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash("abc"), expected);
    }

    #[test]
    fn tokens_may_stand_in_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        assert!(AdminAuth::parse(path).unwrap_err().contains("no token"));
        fs::write(path, format!("# who\nci={}\n\n{}\n", hash("one"), hash("two"))).unwrap();
        let auth = AdminAuth::parse(path).unwrap();
        assert_eq!((name_of(&auth, "one"), name_of(&auth, "two")), (Some("ci"), Some("token 2")));
    }

    #[test]
    fn a_token_is_listed_once() {
        let twice = format!("look={} read_only, ops={}", hash("one"), hash("one"));
        let error = AdminAuth::parse(&twice).unwrap_err();
        assert!(error.starts_with("entry 2 has the hash of entry 1"), "{error}");
    }

    #[test]
    fn a_token_in_place_of_its_hash_is_not_repeated() {
        let unknown_flag = format!("{} hunter2", hash("one"));
        for text in ["hunter2", "ci=sha256:hunter2", "sha256:hunter2", &unknown_flag] {
            let error = AdminAuth::parse(text).unwrap_err();
            assert!(error.contains("weir admin token") && !error.contains("hunter2"), "{error}");
        }
        let auth = AdminAuth::parse(&hash("hunter2")).unwrap();
        assert!(!format!("{auth:?}").contains(&hash("hunter2")));
    }
}
