//! Reads a gateway's own report of its costs, as the parts of a request in order.
use crate::result::{ChainCost, ChainPart};
use serde_json::Value;

/// The phases of plugins before the upstream is asked, and after.
const BEFORE: [&str; 1] = ["access"];
const AFTER: [&str; 3] = ["response", "response_body", "log"];

/// The chain of a route, by its name or id, or of the one that was asked most.
///
/// # Errors
/// When what is costs holds no such route, or nothing was measured.
pub fn read(costs: &Value, target: &str, case: &str, route: Option<&str>) -> Result<ChainCost, String> {
    let routes = costs["routes"].as_array().ok_or("it reports no costs: is it an older version?")?;
    let is_it = |row: &&Value| match route {
        Some(route) => row["route"]["name"] == route || row["route"]["id"] == route,
        None => !row["route"].is_null(),
    };
    let found = routes.iter().filter(is_it).max_by_key(|row| row["requests"].as_u64());
    let found = found.ok_or_else(|| match route {
        Some(route) => {
            format!("no request was measured on a route called {route}; name one that the load asks")
        }
        None => "no request that matched a route was measured".to_owned(),
    })?;
    let all: f64 = routes.iter().map(|row| number(&row["requests"])).sum();
    let requests = number(&found["requests"]);
    let cpu_us = number(&costs["worker_cpu_seconds"]) * 1e6 / all.max(1.0);
    let mut plugins: Vec<&Value> = costs["data"].as_array().into_iter().flatten().collect();
    plugins.retain(|row| row["route"]["id"] == found["route"]["id"]);
    plugins.sort_by_key(|row| (-row["priority"].as_i64().unwrap_or(0), row["name"].to_string()));
    let chain = Chain { plugins, requests };
    let mut parts = chain.parts(&BEFORE);
    parts.extend(chain.waits());
    parts.extend(part("upstream", "upstream", &found["upstream"], requests));
    parts.extend(chain.parts(&AFTER));
    let name = found["route"]["name"].as_str().or(found["route"]["id"].as_str()).unwrap_or_default();
    let chain = ChainCost {
        target: target.to_owned(),
        case: case.to_owned(),
        route: name.to_owned(),
        requests: requests as u64,
        cpu_us,
        parts,
    };
    Ok(with_engine(chain))
}

/// Adds the rest of the CPU time, and each part's share. Where plugins took more than all of it there is neither.
fn with_engine(mut chain: ChainCost) -> ChainCost {
    if chain.is_crowded() {
        return chain;
    }
    let plugins: f64 = chain.parts.iter().filter(|part| part.is_cpu()).map(|part| part.mean_us).sum();
    chain.parts.push(ChainPart {
        phase: "engine".to_owned(),
        name: "the gateway itself".to_owned(),
        mean_us: chain.cpu_us - plugins,
        p50_us: None,
        p99_us: None,
        cpu_share: None,
    });
    for part in chain.parts.iter_mut().filter(|part| part.is_cpu()) {
        part.cpu_share = Some(part.mean_us / chain.cpu_us);
    }
    chain
}

struct Chain<'t> {
    /// In the order in which they run.
    plugins: Vec<&'t Value>,
    requests: f64,
}

impl Chain<'_> {
    fn parts(&self, phases: &[&str]) -> Vec<ChainPart> {
        let of = |phase: &str| {
            let one = |plugin: &&Value| {
                let name = plugin["name"].as_str().unwrap_or_default();
                part(phase, name, &plugin["phases"][phase], self.requests)
            };
            self.plugins.iter().filter_map(one).collect::<Vec<_>>()
        };
        phases.iter().flat_map(|phase| of(phase)).collect()
    }

    /// What plugins wait for costs time and no CPU.
    fn waits(&self) -> Vec<ChainPart> {
        let waiting = self.plugins.iter().filter(|plugin| number(&plugin["waits"]) > 0.0);
        let wait = |plugin: &&Value| ChainPart {
            phase: "wait".to_owned(),
            name: plugin["name"].as_str().unwrap_or_default().to_owned(),
            mean_us: number(&plugin["us_waited_mean"]) * number(&plugin["waits"]) / self.requests.max(1.0),
            p50_us: None,
            p99_us: None,
            cpu_share: None,
        };
        waiting.map(wait).collect()
    }
}

/// The mean is that of all requests, whether it ran for them or not.
fn part(phase: &str, name: &str, costs: &Value, requests: f64) -> Option<ChainPart> {
    let calls = costs["calls"].as_f64()?;
    Some(ChainPart {
        phase: phase.to_owned(),
        name: name.to_owned(),
        mean_us: number(&costs["us_mean"]) * calls / requests.max(1.0),
        p50_us: costs["us_p50"].as_f64(),
        p99_us: costs["us_p99"].as_f64(),
        cpu_share: None,
    })
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn phase(us: f64) -> Value {
        json!({ "calls": 100, "us_mean": us, "us_p50": us, "us_p99": us * 2.0 })
    }

    fn costs() -> Value {
        let plugin = |name, priority, route, phases: Value, waits| {
            json!({ "name": name, "priority": priority, "route": { "id": route, "name": "r" }, "phases": phases,
                    "waits": waits, "us_waited_mean": 500.0 })
        };
        json!({
            "worker_cpu_seconds": 0.002,
            "routes": [
                { "route": { "id": "1", "name": "r" }, "requests": 100, "upstream": phase(50.0) },
                { "route": { "id": "2", "name": "s" }, "requests": 60 },
                { "route": null, "requests": 40 },
            ],
            "data": [
                plugin("file-log", 9, "1", json!({ "log": phase(0.5) }), 0),
                plugin("cors", 2000, "1", json!({ "access": phase(0.1), "response": phase(0.2) }), 0),
                plugin("forward-auth", 1010, "1", json!({ "access": phase(1.0) }), 50),
                plugin("acl", 950, "2", json!({ "access": phase(9.0) }), 0),
            ],
        })
    }

    #[test]
    fn parts_come_as_a_request_meets_them_and_the_engine_is_the_rest() {
        let chain = read(&costs(), "weir", "c", None).unwrap();
        let parts: Vec<(&str, &str, f64)> =
            chain.parts.iter().map(|part| (part.phase.as_str(), part.name.as_str(), part.mean_us)).collect();
        let expected = [
            ("access", "cors", 0.1),
            ("access", "forward-auth", 1.0),
            ("wait", "forward-auth", 250.0),
            ("upstream", "upstream", 50.0),
            ("response", "cors", 0.2),
            ("log", "file-log", 0.5),
        ];
        assert_eq!(parts[..6], expected);
        let engine = &chain.parts[6];
        assert!((engine.mean_us - 8.2).abs() < 1e-9, "2 ms for 200 requests, less the plugins: {engine:?}");
        let shares: f64 = chain.parts.iter().filter_map(|part| part.cpu_share).sum();
        assert!((shares - 1.0).abs() < 1e-9);
    }

    #[test]
    fn plugins_that_took_longer_than_there_was_cpu_time_leave_no_engine_and_no_shares() {
        let mut costs = costs();
        costs["worker_cpu_seconds"] = json!(0.0002);
        let chain = read(&costs, "weir", "c", None).unwrap();
        assert!(chain.parts.iter().all(|part| part.phase != "engine" && part.cpu_share.is_none()));
        let text = crate::report::text::chain::text(&chain);
        assert!(text.contains("sum to 1.8 µs, more than the 1.0 µs of CPU time"), "{text}");
        assert!(!text.contains('%') && !text.contains("the gateway itself"), "{text}");
    }

    #[test]
    fn a_route_is_found_by_its_name_or_is_missing() {
        assert_eq!(read(&costs(), "weir", "c", Some("s")).unwrap().parts[0].name, "acl");
        assert!(read(&costs(), "weir", "c", Some("t")).unwrap_err().contains("route called t"));
        assert!(read(&json!({}), "weir", "c", None).is_err());
    }
}
