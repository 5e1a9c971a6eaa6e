//! `/status/dns`: what the resolver has done for each name, in the form of Kong's DNS client.
use crate::control::Control;
use crate::listener::json_response;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use weir_net::resolve::{Lookup, NameStats, QueryStats};

pub(crate) async fn show(State(control): State<Arc<Control>>) -> Response {
    let names = control.dns_stats();
    let stats: Map<String, Value> = names.iter().flat_map(of_name).collect();
    let worker = json!({ "id": 0, "count": control.settings().workers.0 });
    json_response(StatusCode::OK, &json!({ "worker": worker, "stats": stats }))
}

/// The look-ups of a name, beside the queries for the type of records that answers it, and its other queries.
fn of_name(stats: &NameStats) -> Vec<(String, Value)> {
    let lookups = match stats.source {
        Some(Lookup::Srv) => "SRV",
        _ => "A/AAAA",
    };
    let counts = &stats.lookups;
    let looked_up = json!({
        "runs": counts.runs, "hit_lru": counts.hits, "stale": counts.stale, "miss": counts.misses,
    });
    let mut all = vec![(format!("{}|{lookups}", stats.name), looked_up)];
    for (kind, queries) in &stats.queries {
        let key = format!("{}|{}", stats.name, kind_name(*kind));
        let queried = of_queries(queries);
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, Value::Object(members))) => members.extend(queried),
            _ => all.push((key, queried.into())),
        }
    }
    all
}

fn of_queries(stats: &QueryStats) -> Map<String, Value> {
    let counts = [
        ("query", stats.queries),
        ("query_succ", stats.successes),
        ("query_fail_nameserver", stats.server_failures),
        ("query_fail:empty record received", stats.empty),
    ];
    let mut shown: Map<_, _> = counts
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect();
    shown.insert("query_last_time".to_owned(), (stats.last_time.as_millis() as u64).into());
    shown
}

fn kind_name(kind: Lookup) -> &'static str {
    match kind {
        Lookup::Srv => "SRV",
        Lookup::Aaaa => "AAAA",
        Lookup::A | Lookup::Last => "A",
    }
}
