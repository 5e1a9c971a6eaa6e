//! APISIX's traffic-split: its upstreams are objects, or stand in the configuration.
use super::adapted::Adapted;
use crate::apisix::object::Invalid;
use crate::apisix::translate::schema::{Upstream, read};
use crate::apisix::translate::{Entities, Kind, named, upstream};
use serde_json::json;
use weir_model::schema::{FieldError, Json, Record};

/// Sends a share of the requests elsewhere.
#[derive(Clone, Record)]
#[record(check = one_upstream)]
pub(super) struct TrafficSplit {
    #[field(default = [])]
    rules: Vec<Rule>,
}

/// A rule.
#[derive(Clone, Record)]
struct Rule {
    #[field(len_min = 1)]
    r#match: Option<Vec<Match>>,
    #[field(len_min = 1, len_max = 20)]
    weighted_upstreams: Option<Vec<Share>>,
}

/// A condition.
#[derive(Clone, Record)]
struct Match {
    vars: Json,
}

/// An upstream and its weight. Without an upstream, the weight is the route's own.
#[derive(Clone, Record)]
struct Share {
    upstream_id: Option<Json>,
    upstream: Option<Upstream>,
    #[field(default = 1, between = [0, 65535])]
    weight: u32,
}

fn one_upstream(config: &TrafficSplit) -> Vec<FieldError> {
    let mut found = Vec::new();
    for (at, rule) in config.rules.iter().enumerate() {
        let shares = rule.weighted_upstreams.iter().flatten().enumerate();
        for (share, Share { upstream_id, upstream, .. }) in shares {
            let path = format!("rules[{at}].weighted_upstreams[{share}]");
            let mut refuse =
                |field: &str, message: &str| found.push(FieldError::new(format!("{path}{field}"), message));
            if upstream_id.is_some() && upstream.is_some() {
                refuse("", "write `upstream_id` or `upstream`, not both");
            }
            let Some(upstream) = upstream else { continue };
            if !matches!(upstream.scheme.as_str(), "http" | "https") {
                refuse(".upstream.scheme", "expected http or https: requests have the route's protocol");
            }
            if upstream.pass_host == "node" {
                refuse(
                    ".upstream.pass_host",
                    "expected pass or rewrite: the node's name is not available here",
                );
            }
            if upstream.timeout.is_some() {
                refuse(".upstream.timeout", "the timeouts are those of the route; leave it out");
            }
        }
    }
    found
}

impl Adapted for TrafficSplit {
    /// Without the names of the upstreams, which [`resolve`] adds.
    fn ours(&self, _: &Json) -> Result<Json, Invalid> {
        let mut rules: Vec<_> = self.rules.iter().map(rule).collect();
        if rules.is_empty() {
            rules.push(json!({ "weighted_upstreams": [{ "weight": 1 }] }));
        }
        Ok(json!({ "rules": rules }))
    }
}

fn rule(rule: &Rule) -> Json {
    let condition = |of: &Match| json!({ "vars": of.vars });
    let share = |share: &Share| json!({ "weight": share.weight });
    let shares = rule.weighted_upstreams.as_ref().map(|of| of.iter().map(share).collect::<Json>());
    json!({
        "match": rule.r#match.as_ref().map(|of| of.iter().map(condition).collect::<Json>()),
        "weighted_upstreams": shares.unwrap_or_else(|| json!([{ "weight": 1 }])),
    })
}

/// Adds the upstreams that stand in the configuration, and names those that requests go to.
pub(super) fn resolve(
    into: &mut Entities<'_>,
    part: &str,
    theirs: &Json,
    ours: &mut Json,
) -> Result<(), Invalid> {
    for (at, rule) in theirs["rules"].as_array().into_iter().flatten().enumerate() {
        for (number, share) in rule["weighted_upstreams"].as_array().into_iter().flatten().enumerate() {
            let part = format!("{part}plugins/traffic-split/{at}/{number}/");
            let Some((name, scheme)) = upstream_of(into, &part, share)? else { continue };
            let ours = &mut ours["rules"][at]["weighted_upstreams"][number];
            ours["upstream"] = name.into();
            ours["tls"] = (scheme == "https").into();
        }
    }
    Ok(())
}

/// The name and the scheme of the upstream of a share, if it has one.
fn upstream_of(
    into: &mut Entities<'_>,
    part: &str,
    share: &Json,
) -> Result<Option<(String, String)>, Invalid> {
    if !share["upstream"].is_null() {
        let upstream: Upstream = read(&share["upstream"])?;
        let (name, _) = upstream::balanced(into, part, &upstream)?;
        return Ok(Some((name, upstream.scheme)));
    }
    if share["upstream_id"].is_null() {
        return Ok(None);
    }
    let (key, value) = named(into.objects, Kind::Upstreams, &share["upstream_id"])?;
    Ok(Some((upstream::name(&key, ""), read::<Upstream>(value)?.scheme)))
}
