//! What is sent of a batch, and how configurations are read.

use super::config::{Config, login};
use super::{Entry, requests};
use serde_json::{Value as Json, json};
use weir_plugin::Record;

fn config(more: Json) -> Config {
    let mut config = json!({ "brokers": [{ "host": "a.test", "port": 9092 }], "kafka_topic": "t" });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Config::from_value(&config).unwrap()
}

#[test]
fn a_request_has_no_more_bytes_than_the_limit_or_one_record() {
    let entries: Vec<_> = [3, 3, 9, 1, 1].map(|length| Entry::new(vec![b'x'; length])).into();
    let entries: Vec<_> = entries.iter().collect();
    let sizes = |max_bytes, overhead| -> Vec<usize> {
        requests(&entries, max_bytes, overhead).map(<[_]>::len).collect()
    };
    assert_eq!(sizes(1000, 0), [5]);
    assert_eq!(sizes(6, 0), [2, 1, 2]);
    assert_eq!(sizes(6, 1), [1, 1, 1, 2]);
    assert_eq!(sizes(0, 0), [1; 5]);
    assert_eq!(requests(&[], 6, 0).count(), 0);
}

#[test]
fn batches_are_those_of_apisixs_processor_or_of_its_client() {
    for (more, size, delay) in [
        (json!({}), 1000, 5.0),
        (json!({ "batch_max_size": 20, "inactive_timeout": 9, "buffer_duration": 7 }), 20, 7.0),
        (json!({ "batch_max_size": 1 }), 200, 1.0),
        (json!({ "batch_max_size": 1, "producer_batch_num": 9, "producer_time_linger": 2 }), 9, 2.0),
        (json!({ "batch_max_size": 1, "producer_type": "sync" }), 1, 5.0),
    ] {
        let queue = config(more.clone()).queue().unwrap();
        assert_eq!((queue.max_batch_size, queue.max_coalescing_delay), (size, delay), "{more}");
    }
}

#[test]
fn a_batch_is_sent_again_as_often_as_with_apisix() {
    for (more, retries, delay) in [
        (json!({}), 3, 0.1),
        (json!({ "producer_type": "sync" }), 0, 1.0),
        (json!({ "max_retry_count": 2, "retry_delay": 5 }), 2, 5.0),
        (json!({ "max_retry_count": 2, "retry_delay": 0 }), 2, 0.001),
    ] {
        let config = config(more.clone());
        assert_eq!(
            (config.retries(), config.queue().unwrap().initial_retry_delay),
            (retries, delay),
            "{more}"
        );
    }
}

#[test]
fn a_broker_gets_its_own_login_or_that_of_the_broker_that_named_it() {
    let broker =
        |host: &str| json!({ "host": host, "port": 1, "sasl_config": { "user": host, "password": "p" } });
    let listed = [broker("a"), broker("b"), json!({ "host": "c", "port": 1 })];
    let brokers = config(json!({ "brokers": listed })).brokers();
    let user = |host: &str, port, named_by: usize| {
        let named_with = brokers[named_by].sasl_config.as_ref();
        login(&brokers, &(host.to_owned(), port), named_with).map(|login| login.user.as_str())
    };
    assert_eq!([user("a", 1, 1), user("b", 1, 0), user("c", 1, 0)], [Some("a"), Some("b"), None]);
    assert_eq!([user("d", 1, 0), user("d", 1, 1), user("d", 1, 2)], [Some("a"), Some("b"), None]);
    assert_eq!(user("a", 2, 1), Some("b"));
}

#[test]
fn passwords_are_not_shown() {
    let login = json!({ "user": "weir", "password": "hunter2" });
    let shown =
        format!("{:?}", config(json!({ "brokers": [{ "host": "a", "port": 1, "sasl_config": login }] })));
    assert!(shown.contains("weir") && !shown.contains("hunter2"), "{shown}");
}
