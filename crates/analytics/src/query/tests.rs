use super::*;
use crate::bucket::Bucket;
use crate::cause::{Cause, Origin};
use crate::entities::{Entities, Entity, Kind};
use crate::model::ModelCall;
use crate::record::{Record, Tick};
use crate::samples::{Reason, RequestTexts, SampleBuilder};
use crate::store::{Budget, Store};
use crate::testing::{LOCALHOST, record};
use std::sync::Arc;
use std::time::Duration;

const START: u64 = 1_790_000_040;
const FRAME: Frame = Frame { from: START, to: START + 60 };

/// A minute of two routes: "fast" ten times a second, "slow" twice, of which one fails.
fn store() -> Store {
    let mut store = Store::new(Arc::<Entities>::default(), Budget::default(), START * 1_000);
    let worker = store.add_worker();
    let entities = Arc::clone(store.entities());
    let (fast, slow) = (entities.intern_route("fast", 0), entities.intern_route("slow", 0));
    let plugin = Cause::Plugin(entities.intern(Kind::Plugin, "key-auth") as u16);
    for second in 0..60 {
        let at = (START + second) * 1_000;
        let base = Record { time: Tick::at(at), ..record(slow) };
        (0..10).for_each(|_| worker.push(&Record { route: fast, ..base }));
        worker.push(&Record { total: Bucket::of_nanos(2_000_000_000), ..base });
        let refused = Record { status: 401, cause: plugin, ..base };
        worker.push(&refused);
        let texts = RequestTexts { method: "GET", path: "/orders/7", query: "key=abc", ..Default::default() };
        let sample = SampleBuilder::new(at, Reason::Error, refused, LOCALHOST, &texts);
        store.samples.add(sample.build());
        store.drain(at + 500);
    }
    store.drain((START + 62) * 1_000);
    store
}

fn chart(store: &Store, metric: &str, by: &str, of: Entity, step: u64) -> Result<Series, QueryError> {
    let by: By = by.parse()?;
    let needs = if matches!(by, By::Entity(_)) { None } else { Some(of) };
    let view = store.view(FRAME.from, FRAME.to, step, needs);
    series(&view, &SeriesQuery { metric: metric.parse()?, by, of, frame: FRAME, step }, store.entities())
}

fn table_of(by: Kind, within: Entity, of: &str, limit: usize) -> TopQuery {
    TopQuery { by, within, of: of.parse().unwrap(), frame: FRAME, limit }
}

/// The labels and the sums of the columns.
fn sums(series: &Series) -> Vec<(&str, f64)> {
    series.columns.iter().map(|c| (c.label.as_str(), c.values.iter().flatten().sum())).collect()
}

#[test]
fn seconds_of_the_node() {
    let series = chart(&store(), "requests", "", Entity::NODE, 1).unwrap();
    assert_eq!((series.step, series.times.len(), series.precision.resolution), (1, 60, 1));
    assert!(series.precision.is_exact());
    assert_eq!(series.columns[0].values, vec![Some(12.0); 60]);
}

#[test]
fn columns_by_properties_and_entities() {
    let store = store();
    let chart = |by| chart(&store, "requests", by, Entity::NODE, 10).unwrap();
    assert_eq!(sums(&chart("status")), [("200", 660.0), ("401", 60.0)]);
    assert_eq!(sums(&chart("class")), [("2xx", 660.0), ("4xx", 60.0)]);
    assert_eq!(sums(&chart("origin")), [("gateway", 60.0), ("upstream", 660.0)]);
    assert_eq!(sums(&chart("cause")), [("response", 660.0), ("plugin key-auth", 60.0)]);
    assert_eq!(sums(&chart("protocol")), [("http1", 720.0)]);
    assert_eq!(sums(&chart("route")), [("fast", 600.0), ("slow", 120.0)]);
    assert_eq!(sums(&chart("consumer")), [("none", 720.0)]);
    let heat_map = chart("bucket");
    let (label, count) = sums(&heat_map)[1];
    assert!((label.parse::<f64>().unwrap() - 2.0).abs() < 0.05 && count == 60.0, "{label}");
}

#[test]
fn metrics_of_a_route() {
    let store = store();
    let slow = Entity::new(Kind::Route, store.entities().find(Kind::Route, "slow").unwrap());
    let value = |metric| chart(&store, metric, "", slow, 60).unwrap().columns[0].values[0].unwrap();
    assert_eq!((value("errors"), value("error_rate")), (60.0, 0.5));
    assert_eq!((value("4xx"), value("5xx")), (60.0, 0.0));
    assert_eq!((value("bytes_in"), value("bytes_out"), value("reused")), (12_000.0, 120_000.0, 120.0));
    assert!((value("p99") - 2.0).abs() < 0.03 && (value("p50") - 0.001).abs() < 0.00002);
    assert!((value("mean_gateway") / 0.000_02 - 1.0).abs() < 0.02);
    assert!((value("p999_upstream") / 0.000_98 - 1.0).abs() < 0.02);
}

#[test]
fn columns_have_a_total_for_the_frame() {
    let store = store();
    let slow = Entity::new(Kind::Route, store.entities().find(Kind::Route, "slow").unwrap());
    let total = |metric, by, of| chart(&store, metric, by, of, 10).unwrap().columns[0].total.unwrap();
    assert_eq!(total("requests", "status", Entity::NODE), 660.0);
    assert_eq!((total("error_rate", "", slow), total("errors", "route", Entity::NODE)), (0.5, 0.0));
    assert!((total("p99", "", slow) - 2.0).abs() < 0.03);
}

#[test]
fn nonsense_is_explained() {
    let store = store();
    for (metric, by, hint) in [
        ("p17", "", "metric: there is no 'p17'; use one of requests"),
        ("p99_", "", "metric: there is no 'p99_'"),
        ("requests", "weather", "by: there is no 'weather'; use one of status"),
        ("p99", "status", "by: 'p99' cannot be divided by status"),
        ("p999_gateway", "origin", "'p999_gateway' cannot be divided by origin"),
    ] {
        let error = chart(&store, metric, by, Entity::NODE, 1).unwrap_err().to_string();
        assert!(error.contains(hint), "{error}");
    }
    assert_eq!(chart(&store, "requests", "", Entity::NODE, 0), Err(QueryError::EmptyFrame));
}

#[test]
fn a_chart_is_never_too_long() {
    let store = store();
    let frame = Frame { from: 0, to: u64::MAX / 2 };
    let view = store.view(frame.from, frame.to, 1, Some(Entity::NODE));
    let query = SeriesQuery { metric: Metric::Requests, by: By::Nothing, of: Entity::NODE, frame, step: 1 };
    let series = series(&view, &query, store.entities()).unwrap();
    assert!(series.times.len() <= 2_001);
    assert_eq!(sums(&series), [("", 720.0)]);
}

#[test]
fn tables() {
    let store = store();
    let view = store.view(FRAME.from, FRAME.to, 2, None);
    let ask = |of: &str, limit| top(&view, &table_of(Kind::Route, Entity::NODE, of, limit), store.entities());
    let table = |of: &str| ask(of, 10).unwrap();
    let labels = |table: &Top| table.rows.iter().map(|row| row.label.clone()).collect::<Vec<_>>();
    assert_eq!(labels(&table("requests")), ["fast", "slow"]);
    assert_eq!(labels(&table("p99")), ["slow", "fast"]);
    assert_eq!(table("requests").rows[0].sparkline.iter().flatten().sum::<u64>(), 600);
    let first = ask("requests", 1).unwrap();
    assert_eq!((first.rows.len(), first.total), (1, 2));
}

/// A minute in which "alice" asks for "orders" twice and for "items" once a second, and "bob" for "orders" once.
fn store_of_consumers() -> Store {
    let mut store = Store::new(Arc::<Entities>::default(), Budget::default(), START * 1_000);
    let worker = store.add_worker();
    let entities = Arc::clone(store.entities());
    let [orders, items] = ["orders", "items"].map(|route| entities.intern_route(route, 0));
    let [alice, bob] = ["alice", "bob"].map(|consumer| entities.intern(Kind::Consumer, consumer));
    for second in 0..60 {
        let time = Tick::at((START + second) * 1_000);
        for (route, consumer) in
            [(orders, alice), (orders, alice), (items, alice), (orders, bob), (orders, 0)]
        {
            worker.push(&Record { time, consumer, ..record(route) });
        }
        store.drain((START + second) * 1_000 + 500);
    }
    store.drain((START + 62) * 1_000);
    store
}

#[test]
fn requests_of_a_consumer_by_route_and_of_a_route_by_consumer() {
    let store = store_of_consumers();
    let (view, entities) = (store.view(FRAME.from, FRAME.to, 2, None), store.entities());
    let found = |kind, name| Entity::new(kind, entities.find(kind, name).unwrap());
    let rows = |by, within| {
        let table = top(&view, &table_of(by, within, "requests", 10), entities).unwrap();
        assert_eq!(table.missing, 0);
        table.rows.iter().map(|row| (row.label.clone(), row.aggregate.requests())).collect::<Vec<_>>()
    };
    let (alice, orders) = (found(Kind::Consumer, "alice"), found(Kind::Route, "orders"));
    assert_eq!(rows(Kind::Route, alice), [("orders".to_owned(), 120), ("items".to_owned(), 60)]);
    assert_eq!(rows(Kind::Consumer, orders), [("alice".to_owned(), 120), ("bob".to_owned(), 60)]);
    let chart = |by, of| chart(&store, "requests", by, of, 10).unwrap();
    assert_eq!(sums(&chart("route", alice)), [("orders", 120.0), ("items", 60.0)]);
    let pair = Entity::new(Kind::Pair, entities.find_pair(alice.id, orders.id).unwrap());
    assert_eq!(sums(&chart("status", pair)), [("200", 120.0)]);
    assert_eq!(sums(&chart("", Entity::new(Kind::Pair, 0))), [("", 0.0)]);
    for (by, within) in [(Kind::Service, alice), (Kind::Route, Entity::new(Kind::Consumer, 0))] {
        let refused = top(&view, &table_of(by, within, "requests", 10), entities);
        assert_eq!(refused, Err(QueryError::NotPaired(by, Kind::Consumer)));
    }
}

#[test]
fn pairs_beyond_the_limit_are_missing_and_the_answer_says_how_many_may_be() {
    let mut store = Store::new(Arc::<Entities>::default(), Budget::default(), START * 1_000);
    let worker = store.add_worker();
    let entities = Arc::clone(store.entities());
    let [busy, rare] = ["busy", "rare"].map(|consumer| entities.intern(Kind::Consumer, consumer));
    let routes = Kind::Pair.limit() as u32 + 10;
    for route in 0..routes {
        let route = entities.intern_route(&route.to_string(), 0);
        worker.push(&Record { time: Tick::at(START * 1_000), consumer: busy, ..record(route) });
    }
    worker.push(&Record { time: Tick::at(START * 1_000), consumer: rare, ..record(1) });
    store.drain((START + 20) * 1_000);
    let view = store.view(FRAME.from, FRAME.to, 2, None);
    let table = |by, kind, id| {
        top(&view, &table_of(by, Entity::new(kind, id), "requests", 9_999), &entities).unwrap()
    };
    let of_busy = table(Kind::Route, Kind::Consumer, busy);
    assert_eq!((of_busy.rows.len(), of_busy.missing), (Kind::Pair.limit(), 10));
    let of_rare = table(Kind::Route, Kind::Consumer, rare);
    assert_eq!((of_rare.rows.len(), of_rare.missing), (0, 1), "at most its own requests are missing");
    assert_eq!(table(Kind::Consumer, Kind::Route, 1).missing, 1);
    assert_eq!(table(Kind::Route, Kind::Node, 0).missing, 0);
}

#[test]
fn a_sparkline_tells_no_requests_from_no_knowledge() {
    let store = store();
    let frame = Frame { from: START - 60, to: START + 120 };
    let view = store.view(frame.from, frame.to, 6, None);
    let query = TopQuery { frame, ..table_of(Kind::Route, Entity::NODE, "requests", 1) };
    let table = top(&view, &query, store.entities()).unwrap();
    let sparkline = &table.rows[0].sparkline;
    assert_eq!(sparkline[..10], [None; 10], "the node did not run");
    assert!(sparkline[10..20].iter().all(Option::is_some), "{sparkline:?}");
    assert_eq!(sparkline[21..], [None; 9], "that is in the future");
    assert_eq!(sparkline.iter().flatten().sum::<u64>(), 600);
}

#[test]
fn errors_have_a_group_and_samples() {
    let store = store();
    let view = store.view(FRAME.from, FRAME.to, 2, None);
    let errors = errors(&view, &store.samples, ErrorScope::Routes, FRAME, store.entities()).unwrap();
    let [group] = &errors.groups[..] else { panic!("{:?}", errors.groups.len()) };
    assert_eq!((group.route.as_str(), group.cause.as_str(), group.count), ("slow", "plugin key-auth", 60));
    assert_eq!((group.first, group.last), (START, START + 50));
    assert_eq!((group.samples.len(), group.sparkline.iter().flatten().sum::<u64>()), (16, 60));
}

/// The requests to /orders that a plugin refused.
fn refused(store: &Store) -> RequestFilter {
    RequestFilter {
        frame: Some(FRAME),
        route: store.entities().find(Kind::Route, "slow"),
        status_from: Some(400),
        status_to: Some(499),
        method: Some("GET".to_owned()),
        path_prefix: Some("/orders".to_owned()),
        origin: Some(Origin::Gateway),
        cause: Some(CauseFilter::Named("plugin".to_owned())),
        ..RequestFilter::default()
    }
}

#[test]
fn pages_of_requests() {
    let store = store();
    let filter = refused(&store);
    let (mut before, mut seen) = (None, Vec::new());
    loop {
        let page = requests(&store.samples, &filter, before, 7, store.entities());
        seen.extend(page.requests.iter().map(|sample| sample.at));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert!(seen.len() == 60 && seen.is_sorted_by(|a, b| a > b), "{seen:?}");
}

#[test]
fn filters_leave_requests_out() {
    let store = store();
    let filter = refused(&store);
    let exactly = |cause| Some(CauseFilter::Exactly(cause));
    let plugin = Cause::Plugin(store.entities().find(Kind::Plugin, "key-auth").unwrap() as u16);
    let same = RequestFilter { cause: exactly(plugin), ..filter.clone() };
    assert_eq!(requests(&store.samples, &same, None, 100, store.entities()).requests.len(), 60);
    for other in [
        RequestFilter { frame: Some(Frame { from: START - 5, to: START }), ..filter.clone() },
        RequestFilter { route: Some(99), ..filter.clone() },
        RequestFilter { service: Some(99), ..filter.clone() },
        RequestFilter { consumer: Some(99), ..filter.clone() },
        RequestFilter { upstream: Some(99), ..filter.clone() },
        RequestFilter { status_from: Some(402), ..filter.clone() },
        RequestFilter { status_to: Some(400), ..filter.clone() },
        RequestFilter { method: Some("PUT".to_owned()), ..filter.clone() },
        RequestFilter { path_prefix: Some("/x".to_owned()), ..filter.clone() },
        RequestFilter { at_least: Some(std::time::Duration::from_secs(1)), ..filter.clone() },
        RequestFilter { origin: Some(Origin::Client), ..filter.clone() },
        RequestFilter { cause: exactly(Cause::Plugin(0)), ..filter.clone() },
        RequestFilter { cause: exactly(Cause::NoRoute), ..filter },
    ] {
        let page = requests(&store.samples, &other, None, 10, store.entities());
        assert!(page.requests.is_empty(), "{other:?}");
    }
}

#[test]
fn who_watches_sees_each_request_once_or_how_many_were_missed() {
    let store = store();
    let (samples, all) = (&store.samples, RequestFilter::default());
    let ask = |after, limit| arrivals(samples, &all, after, limit, store.entities());
    let (first, newest) = (samples.first(), samples.newest());
    let begun = ask(first - 1, 50);
    assert_eq!((begun.requests.len(), begun.last, begun.missed), (50, first + 49, 0));
    let rest = ask(begun.last, 50);
    assert_eq!((rest.requests.len(), rest.last, rest.missed), (10, newest, 0));
    assert_eq!(rest.requests.first().map(|sample| sample.number), Some(first + 50));
    assert_eq!(ask(newest, 50).requests, []);
    assert_eq!((ask(0, 99).requests.len(), ask(0, 99).missed), (60, 0), "before the start");
    assert_eq!(ask(u64::MAX, 50).last, newest);
    let none = RequestFilter { route: Some(99), ..all };
    assert_eq!(arrivals(samples, &none, 0, 50, store.entities()).last, newest);
}

#[test]
fn who_is_slow_misses_requests() {
    let mut store = Store::new(Arc::default(), Budget { samples: 4_000, ..Budget::default() }, START);
    let first = store.samples.first();
    for at in 0..100 {
        let texts = RequestTexts::default();
        store.samples.add(SampleBuilder::new(at, Reason::Chance, record(1), LOCALHOST, &texts).build());
    }
    let seen = arrivals(&store.samples, &RequestFilter::default(), first + 9, 200, store.entities());
    assert!(seen.missed > 50 && !seen.requests.is_empty(), "{} missed", seen.missed);
    assert_eq!(seen.missed + seen.requests.len() as u64, 90);
}

/// A minute in which a model was called each second, by turns as a stream, whole, and in vain; another model was asked for in vain.
fn with_models() -> Store {
    let mut store = store();
    for second in 60..120 {
        let call = ModelCall {
            model: "openai/m",
            is_configured: false,
            status: 200,
            tokens: [100, 1 << 40],
            latency: Duration::from_secs(2),
            first_token: None,
            tokens_per_second: Some(50.0),
        };
        store.record_model(&match second % 3 {
            0 => ModelCall { first_token: Some(Duration::from_millis(250)), ..call },
            1 => call,
            _ => ModelCall { status: 502, tokens: [100, 0], tokens_per_second: None, ..call },
        });
        store.record_model(&ModelCall {
            model: "openai/nope",
            status: 404,
            tokens: [0, 0],
            ..call_in_vain()
        });
        store.drain((START + second) * 1_000 + 500);
    }
    store.drain((START + 122) * 1_000);
    store
}

fn call_in_vain() -> ModelCall<'static> {
    ModelCall {
        model: "",
        is_configured: false,
        status: 404,
        tokens: [0, 0],
        latency: Duration::ZERO,
        first_token: None,
        tokens_per_second: Some(f64::NAN),
    }
}

const SECOND_MINUTE: Frame = Frame { from: START + 60, to: START + 120 };

#[test]
fn calls_of_models_are_counted_beside_requests() {
    let store = with_models();
    let view = store.view(SECOND_MINUTE.from, SECOND_MINUTE.to, 10, None);
    let query = |of: &str| TopQuery { frame: SECOND_MINUTE, ..table_of(Kind::Model, Entity::NODE, of, 10) };
    let top = top(&view, &query("completion_tokens"), store.entities()).unwrap();
    let labels: Vec<_> = top.rows.iter().map(|row| (&*row.label, row.aggregate.requests())).collect();
    assert_eq!(labels, [("openai/m", 60), ("others", 60)], "what failed gives no model a name");
    let of = |metric: &str| metric.parse::<Metric>().unwrap().of(&top.rows[0].aggregate);
    assert_eq!((of("errors"), of("5xx")), (Some(20.0), Some(20.0)));
    assert_eq!(
        (of("prompt_tokens"), of("completion_tokens")),
        (Some(6_000.0), Some(40.0 * (1u64 << 40) as f64))
    );
    for (metric, expected) in [
        ("mean", 2.0),
        ("p99", 2.0),
        ("p50_first_token", 0.25),
        ("mean_first_token", 0.25),
        ("p99_tokens_per_second", 50.0),
        ("mean_tokens_per_second", 50.0),
    ] {
        let value = of(metric).unwrap();
        assert!((value / expected - 1.0).abs() < 0.012, "{metric}: {value}");
        assert_eq!(metric.parse::<Metric>().unwrap().to_string(), metric);
    }
    let other = top.rows[1].aggregate.clone();
    assert_eq!("p50_tokens_per_second".parse::<Metric>().unwrap().of(&other), None);
    let node = view.slots.iter().filter_map(|slot| slot.get(Entity::NODE));
    assert_eq!(node.map(|aggregate| aggregate.requests()).sum::<u64>(), 0, "they are no requests");
}

#[test]
fn a_configured_model_has_a_name_whatever_clients_have_asked_for() {
    let mut store = store();
    let any: Vec<_> = (0..1_100).map(|number| format!("openai/{number}")).collect();
    any.iter().for_each(|model| store.record_model(&ModelCall { model, status: 200, ..call_in_vain() }));
    // Providers may count what they like.
    let configured =
        ModelCall { model: "openai/m", is_configured: true, tokens: [u64::MAX; 2], ..call_in_vain() };
    // It is counted by itself from the next minute on, because it is among the busiest.
    for second in 62..145 {
        store.drain((START + second) * 1_000 + 500);
        (0..2).for_each(|_| store.record_model(&configured));
    }
    assert_eq!(store.entities().find(Kind::Model, "openai/1099"), None);
    let model = store.entities().find(Kind::Model, "openai/m").unwrap();
    let view = store.view(START + 130, START + 140, 10, None);
    let found = view.slots.iter().find_map(|slot| slot.get(Entity::new(Kind::Model, model))).unwrap();
    assert_eq!((found.requests(), found.bytes_in, found.bytes_out), (20, u64::MAX, u64::MAX));
}

#[test]
fn a_metric_is_asked_of_what_has_it() {
    let store = with_models();
    let model = Entity::new(Kind::Model, store.entities().find(Kind::Model, "openai/m").unwrap());
    let asked =
        |metric: &str, by: &str, of| chart(&store, metric, by, of, 10).map_err(|error| error.to_string());
    for (metric, by, of) in [
        ("p50_first_token", "", Entity::NODE),
        ("prompt_tokens", "route", Entity::NODE),
        ("bytes_in", "model", Entity::NODE),
        ("p99_upstream", "", model),
        ("requests", "protocol", model),
    ] {
        assert!(asked(metric, by, of).unwrap_err().contains("models"), "{metric} {by}");
    }
    for (metric, by, of) in
        [("p50_first_token", "model", Entity::NODE), ("mean", "", model), ("requests", "status", model)]
    {
        assert!(asked(metric, by, of).is_ok(), "{metric} {by}");
    }
    let view = store.view(FRAME.from, FRAME.to, 10, None);
    let refused = top(&view, &table_of(Kind::Route, Entity::NODE, "prompt_tokens", 1), store.entities());
    assert!(refused.unwrap_err().to_string().starts_with("of: 'prompt_tokens' is counted of models alone"));
}
