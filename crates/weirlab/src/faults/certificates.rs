//! The certificates of upstream servers, under an authority of the run.
use super::FaultError;
use super::scenario::Tls;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use time::OffsetDateTime;

/// The name that certificates are for.
pub(super) const HOST: &str = "faults";

/// Files in PEM.
pub(super) struct Certificates {
    pub(super) ca: PathBuf,
    /// Certificate and key of each server.
    pub(super) servers: Vec<(PathBuf, PathBuf)>,
    /// The last second, since 1970, in which the first server's certificate is valid, if it expires in the run.
    pub(super) expires: Option<i64>,
}

pub(super) fn write(folder: &Path, tls: Tls, servers: usize) -> Result<Certificates, FaultError> {
    let made = || -> Result<Certificates, Box<dyn std::error::Error + Send + Sync>> {
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::new(Vec::new())?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A certificate whose subject is its issuer would count as self-signed.
        ca.distinguished_name.push(DnType::CommonName, "authority of faults");
        let certificate = ca.self_signed(&ca_key)?.pem();
        let issuer = Issuer::new(ca, ca_key);
        let path = folder.join("ca.pem");
        fs::write(&path, certificate)?;
        let not_after = tls.expires().map(|valid_for| OffsetDateTime::now_utc() + valid_for);
        let servers = (0..servers).map(|number| {
            let key = KeyPair::generate()?;
            let mut params = CertificateParams::new(vec![HOST.to_owned()])?;
            if let Some(not_after) = not_after.filter(|_| number == 0) {
                params.not_after = not_after;
            }
            let at = |what| folder.join(format!("server-{number}-{what}.pem"));
            fs::write(at("certificate"), params.signed_by(&key, &issuer)?.pem())?;
            fs::write(at("key"), key.serialize_pem())?;
            Ok((at("certificate"), at("key")))
        });
        Ok(Certificates {
            ca: path,
            servers: servers.collect::<Result<_, Box<dyn std::error::Error + Send + Sync>>>()?,
            expires: not_after.map(OffsetDateTime::unix_timestamp),
        })
    };
    made().map_err(|error| FaultError::system("certificates cannot be made", io::Error::other(error)))
}
