//! What all protocols begin with: a data plane introduces itself in its first message, is recorded in the fleet, and has a
//! version that goes with the control plane's, or not.
use super::ControlPlane;
use super::bounds::{MAX_MESSAGE_LEN, shortened};
use super::fleet::Introduction;
use super::link::Link;
use super::upgrade::Arrival;
use crate::websocket::Frames;
use crate::wire::compat::{KongVersion, check_version};
use bytes::Bytes;
use futures_util::StreamExt;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message as Frame;

/// How long a data plane may take to introduce itself.
const INTRODUCTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the first message of a data plane.
pub(super) async fn first_message<T, E: fmt::Display>(
    stream: &mut impl Frames,
    decode: impl FnOnce(Bytes) -> Result<T, E>,
) -> Result<T, String> {
    match timeout(INTRODUCTION_TIMEOUT, stream.next()).await {
        Ok(Some(Ok(Frame::Binary(bytes)))) => decode(bytes).map_err(|error| error.to_string()),
        Ok(Some(Ok(_))) => Err("its first message is not binary".to_owned()),
        Ok(Some(Err(error))) => Err(error.to_string()),
        Ok(None) => Err("it closed the connection".to_owned()),
        Err(_) => Err("it did not introduce itself".to_owned()),
    }
}

/// Records a data plane that may have any version.
pub(super) fn record(
    plane: &ControlPlane,
    arrival: Arrival,
    labels: BTreeMap<String, String>,
    protocol: &'static str,
) -> Link {
    let Arrival { visitor, peer, address } = arrival;
    let link = plane.fleet.connect(Introduction {
        id: visitor.id,
        hostname: visitor.hostname,
        ip: address.ip().to_canonical().to_string(),
        version: visitor.version,
        certificate_expires: peer.expires,
        protocol: protocol.into(),
    });
    link.introduced(labels);
    link
}

/// Records a data plane; the error is why its version does not go with the control plane's.
pub(super) fn admit(
    plane: &ControlPlane,
    arrival: Arrival,
    labels: BTreeMap<String, String>,
    protocol: &'static str,
) -> Result<(Link, KongVersion), String> {
    let version = arrival.visitor.version.clone();
    let link = record(plane, arrival, labels, protocol);
    match check_version(KongVersion::CURRENT, &version) {
        Ok(version) => Ok((link, version)),
        Err(refused) => {
            let message = shortened(refused.message, MAX_MESSAGE_LEN);
            link.judged(refused.status.as_str(), Some(message.clone()));
            Err(message)
        }
    }
}
