//! What an upstream server does wrong while a fault is active.
use std::fmt;
use std::str::FromStr;

/// The behaviours, each under the name that scenarios use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Behaviour {
    /// Answers every request.
    Healthy,
    /// Resets each new connection as soon as it is accepted. Those from before end with their next response, so that new ones
    /// have to be opened.
    ResetAfterAccept,
    /// Closes the connection once the request was read, without a byte of a response.
    CloseWithoutAnswer,
    /// Resets the connection after half of the response's head.
    ResetInHead,
    /// Resets the connection after half of the response's body.
    ResetInBody,
    /// Closes the connection in good order after half of the response's body.
    CloseInBody,
    /// Answers, and closes the idle connection at a random moment afterwards, without having said so.
    CloseIdle,
    /// Sends the response's head after two fifths of a second.
    SlowHead,
    /// Reads requests and never answers.
    BlackHole,
    /// Accepts connections and reads nothing, so that a TLS handshake never ends.
    StallHandshake,
    /// Sends the body a few bytes at a time.
    Drip,
    /// Answers with bytes that are no HTTP.
    Garbage,
    /// Answers, and closes the connection as it said in the response.
    CloseAfterEach,
}

const NAMES: [(Behaviour, &str); 13] = [
    (Behaviour::Healthy, "healthy"),
    (Behaviour::ResetAfterAccept, "reset-after-accept"),
    (Behaviour::CloseWithoutAnswer, "close-without-answer"),
    (Behaviour::ResetInHead, "reset-in-head"),
    (Behaviour::ResetInBody, "reset-in-body"),
    (Behaviour::CloseInBody, "close-in-body"),
    (Behaviour::CloseIdle, "close-idle"),
    (Behaviour::SlowHead, "slow-head"),
    (Behaviour::BlackHole, "black-hole"),
    (Behaviour::StallHandshake, "stall-handshake"),
    (Behaviour::Drip, "drip"),
    (Behaviour::Garbage, "garbage"),
    (Behaviour::CloseAfterEach, "close-after-each"),
];

impl Behaviour {
    /// Whether it spoils the response to a request that was read, which is a reason to lose that.
    #[must_use]
    pub(super) fn spoils_responses(self) -> bool {
        matches!(
            self,
            Self::CloseWithoutAnswer
                | Self::ResetInHead
                | Self::ResetInBody
                | Self::CloseInBody
                | Self::SlowHead
                | Self::BlackHole
                | Self::Garbage
        )
    }
}

impl FromStr for Behaviour {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(behaviour, _)| *behaviour).ok_or_else(|| {
            let known = NAMES.map(|(_, name)| name).join(", ");
            format!("`{text}` is no behaviour of an upstream server; use one of {known}")
        })
    }
}

impl fmt::Display for Behaviour {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = NAMES.iter().find(|(behaviour, _)| behaviour == self);
        formatter.write_str(found.map_or("", |(_, name)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_stands_for_its_behaviour() {
        for (behaviour, name) in NAMES {
            assert_eq!(name.parse(), Ok(behaviour));
            assert_eq!(behaviour.to_string(), name);
        }
        assert!("reset".parse::<Behaviour>().is_err());
    }
}
