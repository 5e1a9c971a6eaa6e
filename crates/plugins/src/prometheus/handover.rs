//! The counts that a process hands to the one that replaces it, whose metrics then go on instead of beginning at 0.

use super::series::{Key, Latencies, Registry, Series, Sessions};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use weir_plugin::{Handover, Source, Uuid};

/// Of requests, and of sessions.
pub(super) const HANDOVERS: &[Handover] = &[
    Handover {
        name: "prometheus",
        export: |retained, to| export(&retained.get::<Registry>(), to),
        import: |retained, bytes| import(&retained.get::<Registry>(), bytes),
    },
    Handover {
        name: "prometheus sessions",
        export: |retained, to| export(&retained.get::<Sessions>().0, to),
        import: |retained, bytes| import(&retained.get::<Sessions>().0, bytes),
    },
];

/// The counts of one key.
#[derive(Default, Serialize, Deserialize)]
struct Counted {
    service: Option<Uuid>,
    route: Uuid,
    consumer: Option<Uuid>,
    /// Status, whether the gateway made the response, and how many.
    requests: Vec<(u16, bool, u64)>,
    ingress: u64,
    egress: u64,
    /// The buckets of each histogram, then its sum.
    latencies: Vec<Vec<u64>>,
}

fn export(registry: &Registry, to: &mut dyn Write) -> io::Result<()> {
    let mut counted: BTreeMap<Key, Counted> = BTreeMap::new();
    for series in registry.all() {
        let Key { service, route, consumer } = series.key;
        let sum = counted.entry(series.key).or_default();
        (sum.service, sum.route, sum.consumer) = (service, route, consumer);
        series
            .requests
            .for_each(|status, source, count| sum.requests.push((status, source == Source::Kong, count)));
        sum.ingress += series.ingress.get();
        sum.egress += series.egress.get();
        if let Some(latencies) = series.recorded_latencies() {
            let numbers = latencies.all().map(|histogram| histogram.numbers());
            sum.latencies.resize_with(numbers.len(), Vec::new);
            for (sum, numbers) in sum.latencies.iter_mut().zip(numbers) {
                sum.resize(numbers.len(), 0);
                sum.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
            }
        }
    }
    serde_json::to_writer(to, &counted.into_values().collect::<Vec<_>>()).map_err(io::Error::from)
}

fn import(registry: &Registry, bytes: &[u8]) {
    let all: Vec<Counted> = serde_json::from_slice(bytes).unwrap_or_default();
    for Counted { service, route, consumer, requests, ingress, egress, latencies } in all {
        let series = Series::new(Key { service, route, consumer });
        for (status, by_gateway, count) in requests {
            series.requests.add_many(status, if by_gateway { Source::Kong } else { Source::Service }, count);
        }
        series.ingress.add(ingress);
        series.egress.add(egress);
        if !latencies.is_empty() {
            restore(series.latencies(), &latencies);
        }
        registry.add(Arc::new(series));
    }
}

fn restore(latencies: &Latencies, numbers: &[Vec<u64>]) {
    latencies.all().into_iter().zip(numbers).for_each(|(histogram, numbers)| histogram.restore(numbers));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_on_in_another_process() {
        let key = Key { service: Some(Uuid::from_u128(1)), route: Uuid::from_u128(2), consumer: None };
        let count = |registry: &Registry, status, source| {
            registry.with(key, |series| {
                series.requests.add(status, source);
                series.egress.add(100);
                series.latencies().kong.observe(&[10, 20], 15);
            });
        };
        let (old, new) = (Registry::default(), Registry::default());
        count(&old, 200, Source::Service);
        count(&old, 200, Source::Service);
        count(&old, 503, Source::Kong);
        let mut bytes = Vec::new();
        export(&old, &mut bytes).unwrap();
        import(&new, &bytes);
        count(&new, 200, Source::Service);
        let (mut requests, mut egress, mut buckets) = (BTreeMap::new(), 0, 0);
        for series in new.all() {
            series.requests.for_each(|status, _, count| *requests.entry(status).or_insert(0) += count);
            egress += series.egress.get();
            buckets += series.recorded_latencies().unwrap().kong.numbers()[1];
        }
        assert_eq!(requests, BTreeMap::from([(200, 3), (503, 1)]));
        assert_eq!((egress, buckets), (400, 4));
        import(&new, b"not JSON");
    }
}
