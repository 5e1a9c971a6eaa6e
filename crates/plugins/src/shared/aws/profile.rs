//! The file of credentials that AWS's tools share.

use super::{Credentials, CredentialsError, variable};
use std::io::ErrorKind;

/// The credentials of `AWS_PROFILE`, or of the profile `default`; none if there is no such file or profile.
pub(super) fn read() -> Result<Option<Credentials>, CredentialsError> {
    let of_home = || variable("HOME").map(|home| format!("{home}/.aws/credentials"));
    let Some(path) = variable("AWS_SHARED_CREDENTIALS_FILE").or_else(of_home) else { return Ok(None) };
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(profile(&text, &variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned()))),
        // The home of another user is not this node's.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => Ok(None),
        Err(error) => Err(CredentialsError::File { path, why: error.to_string() }),
    }
}

/// The credentials of a profile, which is a section of the file.
fn profile(text: &str, name: &str) -> Option<Credentials> {
    let header = |line: &str| {
        line.strip_prefix('[').and_then(|line| line.strip_suffix(']')).map(|name| name.trim().to_owned())
    };
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
    let of_profile = lines.skip_while(|line| header(line).as_deref() != Some(name)).skip(1);
    let pairs: Vec<_> = of_profile.take_while(|line| !line.starts_with('[')).collect();
    let value = |key: &str| {
        let mut pairs = pairs.iter().filter_map(|line| line.split_once('='));
        pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
    };
    Some(Credentials {
        access_key_id: value("aws_access_key_id")?,
        secret_access_key: value("aws_secret_access_key")?.into(),
        session_token: value("aws_session_token").map(Into::into),
    })
}

#[cfg(test)]
mod tests {
    use super::profile;

    #[test]
    fn a_profile_is_a_section() {
        let text = "[default]\naws_access_key_id = AKID1\naws_secret_access_key=s3cr=t\n\n# [work]\n; [work]\n\
                    [ work ]\n aws_access_key_id=AKID2\naws_secret_access_key=x\naws_session_token = t\n[half]\naws_access_key_id=a\n";
        let found = profile(text, "default").unwrap();
        assert_eq!((&*found.access_key_id, found.secret_access_key.expose()), ("AKID1", "s3cr=t"));
        assert!(found.session_token.is_none());
        let found = profile(text, "work").unwrap();
        assert_eq!((&*found.access_key_id, found.session_token.unwrap().expose()), ("AKID2", "t"));
        assert!(profile(text, "half").is_none() && profile(text, "other").is_none());
    }
}
