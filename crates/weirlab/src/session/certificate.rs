//! The certificate of everything that is measured over TLS: made anew for a run, signed by itself.
use crate::target;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the run's certificate lies.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    /// The certificate, PEM.
    pub(crate) certificate: PathBuf,
    /// Its key, PEM.
    pub(crate) key: PathBuf,
    /// Both in one file.
    pub(crate) combined: PathBuf,
}

impl Certificate {
    /// The same in another folder: a container sees no more than its own.
    pub(crate) fn copy_into(&self, folder: &Path) -> io::Result<Certificate> {
        let copied = |path: &Path| -> io::Result<PathBuf> {
            let copy = folder.join(path.file_name().unwrap_or_default());
            fs::copy(path, &copy)?;
            Ok(copy)
        };
        Ok(Certificate {
            certificate: copied(&self.certificate)?,
            key: copied(&self.key)?,
            combined: copied(&self.combined)?,
        })
    }

    /// The paths for a target's template.
    pub(crate) fn paths(&self) -> target::Certificate<'_> {
        target::Certificate { certificate: &self.certificate, key: &self.key, combined: &self.combined }
    }
}

/// Writes a P-256 certificate for `localhost` into the folder.
pub(crate) fn write(folder: &Path) -> io::Result<Certificate> {
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).map_err(io::Error::other)?;
    let (certificate, key) = (pair.cert.pem(), pair.signing_key.serialize_pem());
    let written = |name: &str, text: &str| -> io::Result<PathBuf> {
        let path = folder.join(name);
        fs::write(&path, text)?;
        Ok(path)
    };
    Ok(Certificate {
        combined: written("both.pem", &format!("{certificate}{key}"))?,
        certificate: written("certificate.pem", &certificate)?,
        key: written("key.pem", &key)?,
    })
}
