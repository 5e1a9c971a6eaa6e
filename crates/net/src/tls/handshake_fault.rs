//! Why a server and this client did not agree on TLS, in plain words. The library's own words are added in brackets.

use super::OLD_VERSION;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use std::{fmt, io};

/// Why a handshake with a server failed.
#[derive(Debug)]
pub struct HandshakeFault {
    kind: FaultKind,
    error: String,
}

/// What is to be fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The server answered without TLS.
    NoTls,
    /// Its certificate has expired.
    Expired,
    /// Its certificate is not valid yet.
    NotYetValid,
    /// Its certificate is for other names.
    WrongName,
    /// Its certificate is revoked.
    Revoked,
    /// Its certificate is of a version that cannot be verified.
    OldVersion,
    /// Its certificate does not lead to an authority that is trusted.
    UnknownAuthority,
    /// It refuses this client's certificate, or asks for one.
    ClientCertificate,
    /// It has no host of the name that it was asked for.
    UnknownName,
    /// It shares no version or no cipher, or misses a certificate of the client.
    Incompatible,
    /// It ended the handshake.
    Ended,
}

impl HandshakeFault {
    /// The fault that is the cause of an error, if it is one of TLS.
    pub fn of(error: &io::Error) -> Option<Self> {
        let kind = match error.get_ref().and_then(|cause| cause.downcast_ref::<Error>()) {
            Some(cause) => kind(cause)?,
            None if error.kind() == io::ErrorKind::UnexpectedEof => FaultKind::Ended,
            None => return None,
        };
        Some(Self { kind, error: error.to_string() })
    }

    /// What is to be fixed.
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    /// How to fix it, where that is no matter of settings.
    pub fn fix(&self) -> Option<&'static str> {
        Some(match self.kind {
            FaultKind::Expired => "renew it",
            FaultKind::NotYetValid => "see that the clocks of both machines are right",
            FaultKind::WrongName => {
                "address the server by a name in the certificate, or issue one with a subjectAltName of this name"
            }
            FaultKind::Revoked => "issue another",
            FaultKind::OldVersion => "issue one of version 3 with a subjectAltName",
            FaultKind::Incompatible => {
                "let the server have TLS 1.2 or 1.3 and a cipher with forward secrecy, or configure the client's certificate"
            }
            _ => return None,
        })
    }

    /// What is wrong with the server's certificate, if that is the fault: `has expired (…)`.
    pub fn of_certificate(&self) -> Option<String> {
        let what = match self.kind {
            FaultKind::Expired => "has expired",
            FaultKind::NotYetValid => "is not valid yet",
            FaultKind::WrongName => "is for other names",
            FaultKind::Revoked => "is revoked",
            FaultKind::OldVersion => "is of X.509 version 1 and cannot be verified",
            FaultKind::UnknownAuthority => "is issued by no authority that is trusted",
            _ => return None,
        };
        // The error of an old version says the same, and how to fix it.
        let is_said = self.kind == FaultKind::OldVersion;
        Some(if is_said { what.to_owned() } else { format!("{what} ({})", self.error) })
    }
}

impl fmt::Display for HandshakeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(what) = self.of_certificate() {
            return write!(f, "the server's certificate {what}");
        }
        f.write_str(match self.kind {
            FaultKind::NoTls => "the server answered without TLS",
            FaultKind::ClientCertificate => "the server refused the client's certificate, or asked for one",
            FaultKind::UnknownName => "the server has no host of the name that was asked for (SNI)",
            // By TLS 1.2, servers say the same if they miss a certificate.
            FaultKind::Incompatible => {
                "the server has no version of TLS or no cipher in common with Weir, or asked for a certificate"
            }
            _ => "the server ended the TLS handshake",
        })?;
        write!(f, " ({})", self.error)
    }
}

fn kind(error: &Error) -> Option<FaultKind> {
    Some(match error {
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        ) => FaultKind::NoTls,
        Error::InvalidCertificate(why) => kind_of_certificate(why),
        Error::General(why) if why == OLD_VERSION => FaultKind::OldVersion,
        Error::AlertReceived(alert) => kind_of_alert(*alert),
        Error::PeerIncompatible(_) => FaultKind::Incompatible,
        _ => return None,
    })
}

fn kind_of_certificate(why: &CertificateError) -> FaultKind {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => FaultKind::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => FaultKind::NotYetValid,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            FaultKind::WrongName
        }
        CertificateError::Revoked => FaultKind::Revoked,
        // A certificate that is signed by itself is its own authority.
        _ => FaultKind::UnknownAuthority,
    }
}

fn kind_of_alert(alert: AlertDescription) -> FaultKind {
    match alert {
        AlertDescription::CertificateRequired
        | AlertDescription::NoCertificate
        | AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied => FaultKind::ClientCertificate,
        AlertDescription::UnrecognisedName => FaultKind::UnknownName,
        AlertDescription::ProtocolVersion
        | AlertDescription::HandshakeFailure
        | AlertDescription::InsufficientSecurity => FaultKind::Incompatible,
        _ => FaultKind::Ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(error: Error) -> HandshakeFault {
        HandshakeFault::of(&io::Error::new(io::ErrorKind::InvalidData, error)).unwrap()
    }

    #[test]
    fn a_fault_says_what_is_wrong_before_the_words_of_the_library() {
        let no_tls = of(Error::InvalidMessage(InvalidMessage::InvalidContentType));
        assert_eq!(no_tls.kind(), FaultKind::NoTls);
        let text = no_tls.to_string();
        assert!(
            text.starts_with("the server answered without TLS (") && text.contains("InvalidContentType"),
            "{text}"
        );
        for (error, kind) in [
            (Error::InvalidCertificate(CertificateError::Expired), FaultKind::Expired),
            (Error::InvalidCertificate(CertificateError::NotValidForName), FaultKind::WrongName),
            (Error::InvalidCertificate(CertificateError::UnknownIssuer), FaultKind::UnknownAuthority),
            (Error::General(OLD_VERSION.to_owned()), FaultKind::OldVersion),
            (Error::AlertReceived(AlertDescription::CertificateRequired), FaultKind::ClientCertificate),
            (Error::AlertReceived(AlertDescription::HandshakeFailure), FaultKind::Incompatible),
            (Error::AlertReceived(AlertDescription::InternalError), FaultKind::Ended),
        ] {
            assert_eq!(of(error).kind(), kind, "{kind:?}");
        }
        assert!(HandshakeFault::of(&io::ErrorKind::ConnectionRefused.into()).is_none());
    }
}
