//! In the database of the nodes.
use super::{HELLO, left, passed};
use crate::harness::{Gateway, Message, PostgresServer, Upstream, eventually, weir};
use serde_json::{Value, json};

/// Has a node take over an entity.
fn put(node: &Gateway, path: &str, body: &Value) -> Message {
    node.ask_admin("PUT", &format!("{path}?wait=true"), &body.to_string())
}

/// Has all nodes limit requests to an upstream.
fn limit(nodes: &[Gateway], upstream: &Upstream, plugin: &str, config: &Value) {
    let first = &nodes[0];
    let url = json!({ "url": format!("http://{}", upstream.address) });
    assert_eq!(put(first, "/services/s", &url).status, 200);
    let plugin = json!({ "name": plugin, "config": config, "service": { "name": "s" } });
    let written = put(first, "/plugins/10000000-0000-4000-8000-000000000001", &plugin);
    assert_eq!(written.status, 200, "{}", written.text());
    let route = json!({ "paths": ["/"], "service": { "name": "s" } });
    assert_eq!(put(first, "/routes/r", &route).status, 200);
    for node in nodes {
        // Each look would count where there is a limit; this one is asked for no upstream.
        eventually("it is in force", || {
            node.admin("/status").json()["revision"]["in_force"].as_u64() >= Some(3)
        });
    }
}

#[test]
fn a_limit_is_kept_exactly_over_three_nodes() {
    let (port, upstream) = (PostgresServer::shared_port(), Upstream::answering(HELLO));
    for (schema, limits, limit) in [
        ("one_limit", json!({ "year": 61 }), 61),
        ("limits", json!({ "month": 43, "year": 500 }), 43),
        ("sliding", json!({ "month": 43, "year": 43, "window_type": "sliding" }), 43),
    ] {
        let nodes: [Gateway; 3] = Gateway::sharing(port, schema);
        let mut config = limits.clone();
        config["policy"] = json!("cluster");
        super::postgres::limit(&nodes, &upstream, "rate-limiting", &config);
        assert_eq!(passed(&nodes, 4, 12, ""), limit, "{limits}");
        let rows = PostgresServer::execute(
            port,
            &format!(
                "SELECT 'counted ' || value FROM {schema}.ratelimiting_metrics WHERE identifier = '127.0.0.1' AND \
                 ttl > CURRENT_TIMESTAMP AND date_trunc(period, period_date) = period_date"
            ),
        );
        let counted = rows.matches(&format!("counted {limit}")).count();
        assert_eq!(counted, limits.as_object().unwrap().len().min(2), "{limits}: {rows}");
    }
}

#[test]
fn files_that_count_in_the_database_are_for_nodes_that_have_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kong.json");
    let plugin = json!({ "name": "rate-limiting", "config": { "minute": 5, "policy": "cluster" } });
    std::fs::write(&file, json!({ "_format_version": "3.0", "plugins": [plugin] }).to_string()).unwrap();
    let check = |settings: &[&str]| {
        let checked = weir().arg("check").arg(&file).args(settings).output().unwrap();
        (checked.status.success(), String::from_utf8_lossy(&checked.stderr).into_owned())
    };
    assert_eq!(check(&["--set", "database=postgres", "--set", "pg_password=x"]), (true, String::new()));
    let (is_good, said) = check(&[]);
    assert!(!is_good && said.contains("start it with database=postgres, or set `policy: redis`"), "{said}");
}

#[test]
fn rows_that_kong_wrote_count() {
    let (port, upstream) = (PostgresServer::shared_port(), Upstream::answering(HELLO));
    let nodes: [Gateway; 1] = Gateway::sharing(port, "with_kong");
    limit(&nodes, &upstream, "rate-limiting", &json!({ "policy": "cluster", "year": 10 }));
    assert_eq!(left(&nodes[0].get("/")), 9);
    PostgresServer::execute(port, "UPDATE with_kong.ratelimiting_metrics SET value = value + 8");
    assert_eq!(left(&nodes[0].get("/")), 0);
    assert_eq!(nodes[0].get("/").status, 429);
}

#[test]
fn what_upstreams_say_was_used_is_counted_for_all_nodes() {
    let port = PostgresServer::shared_port();
    let upstream =
        Upstream::answering("HTTP/1.1 200 OK\r\nX-Kong-Limit: video=2\r\nContent-Length: 5\r\n\r\nhello");
    let nodes: [Gateway; 2] = Gateway::sharing(port, "used");
    let config = json!({ "policy": "cluster", "limits": { "video": { "year": 500 } } });
    limit(&nodes, &upstream, "response-ratelimiting", &config);
    assert_eq!(nodes[0].get("/").header("x-ratelimit-remaining-video-year"), Some("498"));
    let counted = "SELECT period || ' ' || value FROM used.response_ratelimiting_metrics";
    eventually("it is counted", || PostgresServer::execute(port, counted).contains("video_year 2"));
    assert_eq!(nodes[1].get("/").header("x-ratelimit-remaining-video-year"), Some("496"));
}

/// What is more than a row can have does not keep other counts from being told, once each.
#[test]
fn an_amount_beyond_all_numbers_is_the_greatest_there_is() {
    let port = PostgresServer::shared_port();
    let used = "HTTP/1.1 200 OK\r\nX-Kong-Limit: bytes=3000000000, video=2\r\nContent-Length: 5\r\n\r\nhello";
    let upstream = Upstream::answering(used);
    let nodes: [Gateway; 1] = Gateway::sharing(port, "too_much");
    let limits = json!({ "bytes": { "year": 9_000_000_000_u64 }, "video": { "year": 500 } });
    let config = json!({ "policy": "cluster", "limits": limits });
    limit(&nodes, &upstream, "response-ratelimiting", &config);
    let counted = "SELECT period || ' ' || value FROM too_much.response_ratelimiting_metrics ORDER BY 1";
    for videos in [2, 4, 6] {
        assert_eq!(nodes[0].get("/").status, 200);
        let told = format!("video_year {videos}\n");
        eventually("all is told", || {
            let rows = PostgresServer::execute(port, counted);
            rows.contains("bytes_year 2147483647") && rows.contains(&told)
        });
    }
}

#[test]
fn nodes_count_by_themselves_while_the_database_is_away() {
    let (mut server, upstream) = (PostgresServer::start(), Upstream::answering(HELLO));
    let nodes: [Gateway; 1] = Gateway::sharing(server.port, "away");
    limit(&nodes, &upstream, "rate-limiting", &json!({ "policy": "cluster", "year": 100 }));
    assert_eq!(left(&nodes[0].get("/")), 99);
    server.stop();
    let known: Vec<_> = (0..9).map(|_| left(&nodes[0].get("/"))).collect();
    assert_eq!(known, (90..99).rev().collect::<Vec<_>>());
    server.restart();
    let counted = "SELECT 'counted ' || value FROM away.ratelimiting_metrics";
    eventually("it is told", || PostgresServer::execute(server.port, counted).contains("counted 10"));
}

/// More than one statement removes.
#[test]
fn counts_that_are_over_are_removed_and_no_others() {
    let (port, upstream) = (PostgresServer::shared_port(), Upstream::answering(HELLO));
    let nodes: [Gateway; 1] = Gateway::sharing(port, "swept");
    limit(&nodes, &upstream, "rate-limiting", &json!({ "policy": "cluster", "year": 10 }));
    let tables = ["ratelimiting_metrics", "response_ratelimiting_metrics"];
    let id = "00000000-0000-0000-0000-000000000000";
    for (table, period) in tables.iter().zip(["minute", "video_minute"]) {
        for (who, ttl, rows) in [("over", "-1 hour", 25_000), ("kept", "1 hour", 7)] {
            PostgresServer::execute(
                port,
                &format!(
                    "INSERT INTO swept.{table} (identifier, period, period_date, service_id, route_id, value, ttl) \
                     SELECT '{who}' || n, '{period}', CURRENT_TIMESTAMP, '{id}', '{id}', 1, \
                     CURRENT_TIMESTAMP + INTERVAL '{ttl}' FROM generate_series(1, {rows}) n"
                ),
            );
        }
    }
    assert_eq!(left(&nodes[0].get("/")), 9);
    let count = |table: &str, who: &str| {
        let counted = format!("SELECT 'rows ' || count(*) FROM swept.{table} WHERE identifier LIKE '{who}%'");
        PostgresServer::execute(port, &counted)
    };
    for table in tables {
        eventually("what is over is removed", || count(table, "over").contains("rows 0\n"));
        assert!(count(table, "kept").contains("rows 7\n"), "{}", count(table, "kept"));
    }
    assert_eq!(left(&nodes[0].get("/")), 8);
}

#[test]
fn a_database_that_has_not_every_text_is_refused() {
    let (port, upstream) = (PostgresServer::shared_port(), Upstream::answering(HELLO));
    let encoding = "ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'";
    PostgresServer::execute(port, &format!("CREATE DATABASE latin1 {encoding}"));
    let mut settings = PostgresServer::settings(port, "public");
    settings.retain(|(key, _)| key != "pg_database");
    settings.push(("pg_database".to_owned(), "latin1".to_owned()));
    let nodes: [Gateway; 1] = Gateway::sharing_by(&settings);
    limit(&nodes, &upstream, "rate-limiting", &json!({ "policy": "cluster", "year": 2 }));
    let [node] = &nodes;
    assert_eq!([(); 3].map(|()| node.get("/").status), [200, 200, 429], "the node counts by itself");
    eventually("the log says how to mend it", || {
        node.log().contains("its encoding is LATIN1, which has not every text: make a database with UTF8")
    });
}
