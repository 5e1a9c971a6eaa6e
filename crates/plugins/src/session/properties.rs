//! What headers say of a session.

use super::content::{Session, Timeouts};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The properties, by their names in the configuration.
pub(super) const NAMES: [(&str, &str); 7] = [
    ("id", "Session-Id"),
    ("audience", "Session-Audience"),
    ("subject", "Session-Subject"),
    ("timeout", "Session-Timeout"),
    ("idling-timeout", "Session-Idling-Timeout"),
    ("rolling-timeout", "Session-Rolling-Timeout"),
    ("absolute-timeout", "Session-Absolute-Timeout"),
];

/// A property that a header shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Property {
    name: &'static str,
    pub(super) header: &'static str,
}

impl Property {
    /// Those of these names.
    pub(super) fn all(names: Option<&[String]>) -> Vec<Property> {
        let named = |(name, _): &&(&str, &str)| names.unwrap_or_default().iter().any(|it| it == name);
        NAMES.iter().filter(named).map(|(name, header)| Property { name, header }).collect()
    }
}

/// The headers with these properties of a session, as far as it has them.
pub(super) fn of<'p>(
    properties: &'p [Property],
    session: &'p Session,
    (audience, timeouts): (&'p str, Timeouts),
    now: u64,
) -> impl Iterator<Item = (&'static str, String)> + 'p {
    let [idling, rolling, absolute] = timeouts.left(session, now).unwrap_or_default();
    let value = move |name| match name {
        "id" => Some(URL_SAFE_NO_PAD.encode(session.id)),
        "audience" => Some(audience.to_owned()),
        "subject" => session.entry(audience).map(|entry| entry.subject.clone()),
        "timeout" => [idling, rolling, absolute].into_iter().flatten().min().map(|left| left.to_string()),
        "idling-timeout" => idling.map(|left| left.to_string()),
        "rolling-timeout" => rolling.map(|left| left.to_string()),
        _ => absolute.map(|left| left.to_string()),
    };
    properties.iter().filter_map(move |property| Some((property.header, value(property.name)?)))
}
