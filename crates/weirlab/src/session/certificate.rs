//! The certificate of everything that is measured over TLS: made anew for a run, signed by itself.
use crate::target::Certificate;
use std::io;

/// A P-256 certificate for `localhost`.
pub(crate) fn make() -> io::Result<Certificate> {
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).map_err(io::Error::other)?;
    Ok(Certificate { certificate: pair.cert.pem(), key: pair.signing_key.serialize_pem() })
}
