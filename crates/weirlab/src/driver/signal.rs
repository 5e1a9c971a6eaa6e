//! Signals by name.
use super::DriverError;
use rustix::process::Signal;

const SIGNALS: [(&str, Signal); 10] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("KILL", Signal::KILL),
    ("TERM", Signal::TERM),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("WINCH", Signal::WINCH),
    ("CONT", Signal::CONT),
    ("STOP", Signal::STOP),
];

/// `HUP` or `SIGHUP`.
pub(super) fn named(name: &str) -> Result<Signal, DriverError> {
    let short = name.strip_prefix("SIG").unwrap_or(name);
    let found = SIGNALS.iter().find(|(known, _)| *known == short);
    found.map(|(_, signal)| *signal).ok_or_else(|| {
        let known = SIGNALS.map(|(known, _)| known).join(", ");
        DriverError::Unable(format!("there is no signal {name:?}; use one of {known}"))
    })
}
