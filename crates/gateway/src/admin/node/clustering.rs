//! The data planes of a control plane, and which of them serve a revision.
use crate::admin::request::{ApiRequest, PathParam};
use crate::admin::response::{ApiError, json_response};
use crate::cluster::Cluster;
use crate::control::Control;
use crate::store::Revision;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::{Map, Value as Json, json};
use std::sync::Arc;
use std::time::Duration;
use weir_cluster::control_plane::{Coverage, Fleet, Member, Share, State as MemberState};

/// How long a write waits for data planes, unless it says otherwise.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest that a write may wait.
const MAX_WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Which part of all that are known.
const DEFAULT_SIZE: usize = 100;

/// The data planes; none on nodes of other roles.
fn fleet(control: &Control) -> Result<&Arc<Fleet>, ApiError> {
    match control.cluster() {
        Cluster::ControlPlane(fleet) => Ok(fleet),
        Cluster::Alone | Cluster::DataPlane(_) => Err(ApiError::NoControlPlane),
    }
}

/// Pages of data planes, by their ids.
pub(super) async fn list(call: ApiRequest) -> Result<Response, ApiError> {
    let fleet = fleet(&call.control)?;
    let size = call.argument("size").map_or(Some(DEFAULT_SIZE), |size| size.parse().ok());
    let size = size.filter(|size| (1..=1000).contains(size));
    let size = size.ok_or(ApiError::Size("size must be an integer between 1 and 1000"))?;
    let after = call.argument("offset").map(|offset| offset.parse::<weir_model::Uuid>());
    let after = after
        .transpose()
        .map_err(|_| ApiError::Offset(call.argument("offset").unwrap_or_default().to_owned()))?;
    let mut members = fleet.members();
    members.retain(|member| after.is_none_or(|after| member.id > after));
    let more = members.len() > size;
    members.truncate(size);
    let offset = members.last().filter(|_| more).map(|last| last.id.simple().to_string());
    let next = offset.as_ref().map(|offset| format!("/clustering/data-planes?offset={offset}&size={size}"));
    let mut body = json!({ "data": members, "next": next });
    if let Some(offset) = offset {
        body["offset"] = offset.into();
    }
    Ok(json_response(StatusCode::OK, &body))
}

/// One data plane.
pub(super) async fn show(
    State(control): State<Arc<Control>>,
    PathParam(id): PathParam,
) -> Result<Response, ApiError> {
    let fleet = fleet(&control)?;
    let member = id.parse().ok().and_then(|id| fleet.member(id)).ok_or(ApiError::NotFound)?;
    Ok(json_response(StatusCode::OK, &json!(member)))
}

/// Kong's older form.
pub(super) async fn status(State(control): State<Arc<Control>>) -> Result<Response, ApiError> {
    let fleet = fleet(&control)?;
    let row = |member: &Member| {
        let Member { config_hash, hostname, ip, last_seen, .. } = member;
        json!({ "config_hash": config_hash, "hostname": hostname, "ip": ip, "last_seen": last_seen })
    };
    let rows: Map<_, _> = fleet.members().iter().map(|member| (member.id.to_string(), row(member))).collect();
    let mut response = json_response(StatusCode::OK, &rows.into());
    let deprecated = (HeaderName::from_static("deprecation"), HeaderValue::from_static("true"));
    response.headers_mut().insert(deprecated.0, deprecated.1);
    Ok(response)
}

/// Which data planes serve a revision: the newest, unless the query names one.
pub(super) async fn coverage(call: ApiRequest) -> Result<Response, ApiError> {
    let fleet = fleet(&call.control)?;
    let registry = call.control.registry();
    let newest = registry.revision().0;
    let revision = call.argument("revision").map_or(Some(newest), |text| text.parse().ok());
    let wrong = || ApiError::Malformed("revision: write a number, as in X-Weir-Revision".to_owned());
    let revision = revision.ok_or_else(wrong)?;
    // Another control plane may have committed it just now.
    if revision > newest && registry.catch_up().await.is_none_or(|newest| revision > newest.0) {
        return Err(ApiError::NoRevision(registry.revision().0));
    }
    Ok(json_response(StatusCode::OK, &described(revision, &fleet.coverage(revision))))
}

fn described(revision: u64, coverage: &Coverage) -> Json {
    let behind: Vec<_> = coverage.behind.iter().map(short).collect();
    json!({
        "revision": revision,
        "in_force": coverage.reaches(Share::Percent(100)),
        "serving": coverage.serving,
        "behind": behind,
        "offline": coverage.offline,
    })
}

/// What explains why a data plane is behind.
fn short(member: &Member) -> Json {
    json!({
        "id": member.id,
        "hostname": member.hostname,
        "ip": member.ip,
        "state": member.state,
        "state_seconds": member.state_seconds,
        "revision": member.revision,
        "held_back": member.held_back,
        "last_refusal": member.last_refusal,
    })
}

/// A write that is answered once data planes serve it, or too many will not: `?wait=all`, `80%`, or milliseconds, or two of these with a comma.
pub(in crate::admin) struct Wait {
    fleet: Arc<Fleet>,
    share: Share,
    timeout: Duration,
}

impl Wait {
    /// What the query asks for; none on a node that is no control plane.
    pub(in crate::admin) fn asked_for(call: &ApiRequest) -> Result<Option<Wait>, ApiError> {
        let Cluster::ControlPlane(fleet) = call.control.cluster() else { return Ok(None) };
        let Some(asked) = call.argument("wait").filter(|_| !call.is_on("wait")) else { return Ok(None) };
        let mut wait = Wait { fleet: fleet.clone(), share: Share::All, timeout: WAIT_TIMEOUT };
        for word in asked.split(',').map(str::trim) {
            wait.set(word).ok_or_else(|| {
                let message =
                    format!("wait: `{word}` is not `all`, a percentage or milliseconds up to 60000");
                ApiError::Malformed(message)
            })?;
        }
        Ok(Some(wait))
    }

    fn set(&mut self, word: &str) -> Option<()> {
        if word == "all" {
            self.share = Share::All;
        } else if let Some(percent) = word.strip_suffix('%') {
            let percent = percent.parse().ok().filter(|percent| (1..=100).contains(percent))?;
            self.share = Share::Percent(percent);
        } else {
            let milliseconds = word.strip_suffix("ms").unwrap_or(word).parse().ok()?;
            self.timeout =
                Some(Duration::from_millis(milliseconds)).filter(|timeout| *timeout <= MAX_WAIT_TIMEOUT)?;
        }
        Some(())
    }

    /// Waits; returns the response for a write that too few data planes serve when the time is over.
    pub(in crate::admin) async fn end(self, Revision(revision): Revision) -> Option<Response> {
        let coverage = self.fleet.wait(revision, self.share, self.timeout).await;
        if coverage.reaches(self.share) {
            return None;
        }
        let mut body = described(revision, &coverage);
        let connected = coverage.behind.len() + coverage.serving;
        let all = if self.share == Share::All { connected + coverage.offline } else { connected };
        let lacking = all - coverage.serving;
        let failed = coverage.behind.iter().filter(|member| member.state == MemberState::Failed).count();
        body["message"] = match (connected, failed) {
            (0, _) => "saved, but no data plane is connected".into(),
            (_, 0) => format!("saved, but {lacking} of {all} data planes do not serve it yet").into(),
            _ => format!(
                "saved, but {lacking} of {all} data planes do not serve it: {failed} refuse it or cannot be sent it"
            )
            .into(),
        };
        Some(json_response(StatusCode::ACCEPTED, &body))
    }
}
