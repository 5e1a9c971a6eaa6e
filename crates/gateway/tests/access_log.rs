//! Every request leaves its line, and says where it went.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, Upstream, closed_port, curl, document, eventually, one_route, service};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[test]
fn a_stop_loses_no_line() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let services =
        [service("/up", upstream.address, "", ""), service("/down", closed_port(), "retries: 0", "")];
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let mut gateway = Gateway::builder(&document(&services, ""))
        .set("proxy_access_log", log.to_str().unwrap())
        .set("proxy_access_log_format", "json")
        .set("workers", "2")
        .start();
    for _ in 0..20 {
        assert_eq!(gateway.get("/up/x?a=1").status, 200);
    }
    assert_eq!(gateway.get("/down").status, 502);
    assert_eq!(gateway.get("/none").status, 404);
    gateway.signal(Signal::TERM);
    assert!(gateway.exit().success());

    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 22);
    // Workers hand their lines over independently: there is no order between them.
    let of = |status: u16| lines.iter().find(|line| line["response"]["status"] == status).unwrap();
    let (up, down, none) = (of(200), of(502), of(404));
    let place = upstream.address;
    assert_eq!(up["tries"], serde_json::json!([{ "ip": place.ip().to_string(), "port": place.port() }]));
    assert_eq!((&up["upstream_uri"], &up["upstream_status"]), (&"/x?a=1".into(), &"200".into()));
    assert_eq!(
        (&up["source"], &down["source"], &none["source"]),
        (&"upstream".into(), &"error".into(), &"error".into())
    );
    assert_eq!(none["tries"], serde_json::json!([]));
    assert!(gateway.log().contains("connecting to the upstream failed"), "{}", gateway.log());
}

/// How many lines the log has lost, by the metrics.
fn lost(gateway: &Gateway) -> usize {
    let metrics = gateway.status("/metrics").text().to_owned();
    let name = "weir_access_log_dropped_total{log=\"proxy_access_log\"} ";
    metrics.lines().find_map(|line| line.strip_prefix(name)).expect("the metric").parse().unwrap()
}

#[test]
fn a_full_disk_loses_lines_that_are_counted_and_reported_and_no_others() {
    const REPORT: &str = "the access log lost lines";
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let gateway = Gateway::builder(&one_route(upstream.address))
        .set("proxy_access_log", "access.log")
        .set("proxy_access_log_format", "json")
        .disk("256k")
        .start();
    let disk = gateway.disk();
    let text = || fs::read_to_string(disk.path("access.log")).unwrap();
    let mut asked = 0;
    let mut ask = |path: &str| {
        asked += 1;
        assert_eq!(gateway.get(path).status, 200);
    };
    for outage in 1..=2 {
        let lost_before = lost(&gateway);
        ask(&format!("/before/{outage}"));
        eventually("the line is there", || text().contains(&format!("/before/{outage}")));
        disk.fill(None);
        // What is left of the last page takes a few lines, and a part of one more.
        eventually("lines are lost", || {
            ask("/during");
            lost(&gateway) > lost_before + 1
        });
        if outage == 2 {
            gateway.signal(Signal::USR1);
            eventually("the log is opened anew", || gateway.log().contains("proxy_access_log reopened"));
        }
        disk.free();
        ask(&format!("/after/{outage}"));
        eventually("the line is there", || text().contains(&format!("/after/{outage}")));
    }
    let written = text();
    let (whole, torn): (Vec<_>, Vec<_>) =
        written.lines().partition(|line| serde_json::from_str::<Value>(line).is_ok());
    assert_eq!(whole.len() + lost(&gateway), asked, "{written}");
    assert!(torn.len() <= 2, "{torn:?}");
    // It takes a slow machine a minute for a second one.
    let log = gateway.log();
    let reports: Vec<_> = log.lines().filter(|line| line.contains(REPORT)).collect();
    let [report] = reports[..] else { panic!("{log}") };
    assert!(
        report.contains("/access.log") && report.contains("No space left on device (os error 28)"),
        "{report}"
    );
    assert!(report.contains("lines="), "{report}");
}

/// What nginx writes as `$time_local` in UTC, as seconds since 1970.
fn seconds(time: &str) -> u64 {
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let parts: Vec<_> = time.strip_suffix(" +0000").expect("UTC").split(['/', ':']).collect();
    let [day, month, year, hour, minute, second] = parts[..] else { panic!("{time}") };
    let number = |text: &str| text.parse::<u64>().unwrap();
    let month = months.iter().position(|name| *name == month).unwrap() as u64;
    // Years that begin with March end with the leap day.
    let (year, month) = if month < 2 { (number(year) - 1, month + 10) } else { (number(year), month - 2) };
    let days =
        year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + number(day) - 719_469;
    ((days * 24 + number(hour)) * 60 + number(minute)) * 60 + number(second)
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// When requests reached the upstream, and a sign of each.
type Arrivals = Arc<(Mutex<Vec<Duration>>, Condvar)>;

/// An upstream that answers a number of requests once all of them have reached it, and that two seconds ago.
fn holding(number: usize) -> (Upstream, Arrivals) {
    let arrivals = Arrivals::default();
    let (shared, is_short) = (arrivals.clone(), move |times: &mut Vec<_>| times.len() < number);
    let upstream = Upstream::start(move |mut peer, _| {
        let (times, sign) = &*shared;
        while peer.request().is_some() {
            times.lock().unwrap().push(now());
            sign.notify_all();
            let last = *sign.wait_while(times.lock().unwrap(), is_short).unwrap().last().unwrap();
            eventually("two seconds are over", || now() >= last + Duration::from_secs(2));
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        }
    });
    (upstream, arrivals)
}

#[test]
fn requests_start_when_they_start_and_are_logged_when_they_end() {
    let (upstream, arrivals) = holding(2);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let plugin = format!("plugins: [{{name: file-log, config: {{path: {}}}}}]", file("plugin"));
    let document = document(&[service("/", upstream.address, "", &plugin)], "");
    let gateways = ["combined", "json"].map(|format| {
        let builder = Gateway::builder(&document).set("proxy_access_log", &file(format));
        builder.set("proxy_access_log_format", format).start()
    });
    let before = now();
    thread::scope(|scope| {
        gateways.iter().for_each(|gateway| drop(scope.spawn(|| assert_eq!(gateway.get("/").status, 200))));
    });
    let after = now();
    let line = |name: &str| {
        let read = || fs::read_to_string(file(name)).unwrap_or_default();
        eventually("lines are there", || read().ends_with('\n'));
        read()
    };
    let last = *arrivals.0.lock().unwrap().last().unwrap();
    let combined = line("combined");
    let ended = seconds(combined.split(['[', ']']).nth(1).unwrap());
    assert!(
        (last.as_secs() + 2..=after.as_secs()).contains(&ended),
        "{combined} not in {last:?} to {after:?}"
    );
    for name in ["json", "plugin"] {
        let record: Value = serde_json::from_str(line(name).lines().next().unwrap()).unwrap();
        let started = u128::from(record["started_at"].as_u64().unwrap());
        assert!(
            (before.as_millis()..=last.as_millis()).contains(&started),
            "{record} not in {before:?} to {last:?}"
        );
    }
}

/// Asks over HTTP/2 for a path of this host, on a connection to one.test; returns the status and the version of HTTP.
fn over_http2(gateway: &Gateway, host: &str, path: &str) -> String {
    let (to, host) = (format!("::{}", gateway.proxy_ssl()), format!("Host: {host}"));
    let url = format!("https://one.test{path}");
    let plain = ["-sk", "--http2", "--path-as-is", "-o", "/dev/null", "-w", "%{http_code} %{http_version}"];
    curl(&[&plain[..], &["--connect-to", &to, "-H", &host, &url]].concat())
}

/// On connections made for another name as well, where the route of that name is looked up too.
#[test]
fn a_path_that_leads_out_of_a_route_is_logged_without_the_route() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let gateway = Gateway::builder(&document(&[service("/echo", upstream.address, "", "")], ""))
        .set("proxy_listen", "127.0.0.1:0, 127.0.0.1:0 ssl http2")
        .set("proxy_access_log", log.to_str().unwrap())
        .set("proxy_access_log_format", "json")
        .start();
    for host in ["one.test", "two.test"] {
        assert_eq!(over_http2(&gateway, host, "/echo/x"), "200 2", "{host}");
        assert_eq!(over_http2(&gateway, host, "/echo/../none"), "404 2", "{host}");
    }
    let text = || fs::read_to_string(&log).unwrap_or_default();
    eventually("lines are there", || text().ends_with('\n') && text().lines().count() == 4);
    for line in text().lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let names = [&record["route"], &record["service"]].map(|entity| entity["name"].as_str());
        let found = record["response"]["status"] == 200;
        assert_eq!(names, [found.then_some("r-echo"), found.then_some("s-echo")], "{record}");
    }
}
