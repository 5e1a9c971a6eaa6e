//! The severities of log messages by the status of a response.

/// By RFC 5424's numbers.
const SEVERITIES: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// The number of a severity.
pub(crate) fn severity(name: &str) -> usize {
    SEVERITIES.iter().position(|known| *known == name).unwrap_or_default()
}

/// The beginnings of messages for successes, client errors and server errors; none if they are left out.
pub(crate) struct Severities([Option<String>; 3]);

impl Severities {
    /// `beginning` gets the number of a severity.
    pub(crate) fn new(names: [&str; 3], beginning: impl Fn(usize) -> Option<String>) -> Self {
        Self(names.map(|name| beginning(severity(name))))
    }

    /// What a message about this status begins with.
    pub(crate) fn of(&self, status: u16) -> Option<&str> {
        let [success, client, server] = &self.0;
        let beginning = match status {
            ..400 => success,
            400..500 => client,
            500.. => server,
        };
        beginning.as_deref()
    }
}
