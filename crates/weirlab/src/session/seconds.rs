//! What a gateway's own analytics saw of a block, second by second.
use super::order::BlockPosition;
use super::run::Session;
use super::target_runner::RunningTarget;
use crate::result::Second;
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Beyond the time that the block took, because what is asked for begins at a whole second.
const MARGIN: Duration = Duration::from_secs(2);

impl Session<'_> {
    /// The seconds since a block began, `at_s` after the run did; none where the target has no analytics.
    pub(super) fn seconds(&self, place: BlockPosition, open: &RunningTarget, at_s: f64) -> Vec<Second> {
        let contender = &self.contenders[self.entries[place.case].contenders[place.target]];
        let Some((path, admin)) = contender.target.analytics().zip(open.listeners.admin) else {
            return Vec::new();
        };
        let since = self.begun.elapsed() + MARGIN - Duration::from_secs_f64(at_s).min(self.begun.elapsed());
        let ask = |metric: &str| {
            let query = format!("{path}?metric={metric}&step=1s&from=-{}s", since.as_secs());
            // An older version without analytics has no such view.
            open.hosts.generator.json(admin, &query).unwrap_or_default()
        };
        let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
            - self.begun.elapsed().as_secs_f64();
        joined(&ask("requests"), &ask("p99"), begun)
    }
}

/// Requests and latencies of the same seconds, without those that had no requests. `begun` is when the run began, in
/// seconds since 1970.
fn joined(requests: &Value, p99: &Value, begun: f64) -> Vec<Second> {
    let step = requests["step"].as_f64().unwrap_or(1.0).max(1.0);
    let latencies = points(p99);
    let latency = |at: f64| latencies.iter().find(|(time, _)| *time == at).map(|(_, seconds)| seconds * 1e3);
    let second = |(at, count): (f64, f64)| Second {
        at_s: at - begun,
        requests_per_second: count / step,
        p99_ms: latency(at),
    };
    points(requests).into_iter().filter(|(_, count)| *count > 0.0).map(second).collect()
}

/// The times and values of the only column of an answer; what is unknown is left out.
fn points(answer: &Value) -> Vec<(f64, f64)> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (times, values) = (list(&answer["times"]), list(&answer["columns"][0]["values"]));
    times.iter().zip(&values).filter_map(|(at, value)| Some((at.as_f64()?, value.as_f64()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn seconds_with_requests_have_their_latency() {
        let answer =
            |values: Value| json!({"step": 1, "times": [100, 101, 102], "columns": [{"values": values}]});
        let seconds = joined(&answer(json!([0.0, 5.0, 6.0])), &answer(json!([null, 0.002, null])), 90.5);
        let second = |at_s, requests_per_second, p99_ms| Second { at_s, requests_per_second, p99_ms };
        assert_eq!(seconds, [second(10.5, 5.0, Some(2.0)), second(11.5, 6.0, None)]);
        assert!(joined(&Value::Null, &Value::Null, 0.0).is_empty());
    }
}
