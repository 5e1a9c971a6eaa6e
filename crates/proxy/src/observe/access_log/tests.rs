use super::date::civil;
use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::SystemTime;
use weir_model::Uuid;

fn record() -> Record<'static> {
    Record {
        client_ip: [203, 0, 113, 9].into(),
        remote_user: None,
        time: SystemTime::UNIX_EPOCH + Duration::from_millis(951_827_696_789),
        method: b"GET",
        target: b"/a?x=1",
        version: "HTTP/1.1",
        scheme: "https",
        host: Some(b"example.com:8443"),
        tls: None,
        status: 200,
        bytes_sent: 12,
        request_size: 80,
        response_size: 200,
        referer: None,
        user_agent: Some(b"curl/8"),
        latency: Duration::from_micros(2500),
        upstream_latency: Some(Duration::from_micros(1200)),
        receive_latency: Some(Duration::from_micros(300)),
        request_id: "0123456789abcdef0123456789abcdef",
        upstream: None,
        route: None,
        service: None,
        consumer: None,
        source: "upstream",
        error: None,
    }
}

fn combined(record: &Record<'_>) -> String {
    let mut out = Vec::new();
    format::combined(&mut out, record, &mut Dates::default());
    String::from_utf8(out).unwrap()
}

fn json_text(record: &Record<'_>) -> String {
    let mut out = Vec::new();
    format::json(&mut out, record);
    String::from_utf8(out).unwrap()
}

fn parsed(record: &Record<'_>) -> Value {
    serde_json::from_str(&json_text(record)).unwrap()
}

#[test]
fn combined_has_the_fields_of_kong() {
    assert_eq!(
        combined(&record()),
        "203.0.113.9 - - [29/Feb/2000:12:34:56 +0000] \"GET /a?x=1 HTTP/1.1\" 200 12 \"-\" \"curl/8\" \
         kong_request_id: \"0123456789abcdef0123456789abcdef\"\n"
    );
}

#[test]
fn combined_is_dated_by_the_end_of_the_response() {
    let late = Record { latency: Duration::from_millis(300), remote_user: Some(b"ann"), ..record() };
    assert!(combined(&late).starts_with("203.0.113.9 - ann [29/Feb/2000:12:34:57 +0000] "));
}

#[test]
fn combined_escapes_what_could_forge_a_line() {
    let forged = Record { user_agent: Some(b"a\"\r\n\\\x1b[2J\xff"), ..record() };
    assert!(combined(&forged).contains(r#" "a\x22\x0D\x0A\x5C\x1B[2J\xFF" kong_request_id"#));
}

#[test]
fn dates_change_with_the_second() {
    let mut dates = Dates::default();
    let at = |second| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
    assert_eq!(dates.text(at(0)), "01/Jan/1970:00:00:00 +0000");
    assert_eq!(dates.text(at(1)), "01/Jan/1970:00:00:01 +0000");
    assert_eq!(dates.text(at(4_107_542_399)), "28/Feb/2100:23:59:59 +0000");
    assert_eq!(dates.text(at(4_107_542_400)), "01/Mar/2100:00:00:00 +0000");
    assert_eq!(dates.text(SystemTime::UNIX_EPOCH - Duration::from_secs(9)), "01/Jan/1970:00:00:00 +0000");
}

#[test]
fn json_has_the_keys_of_kong() {
    let id = Uuid::from_u128(7);
    let full = Record {
        referer: Some(b"http://r/"),
        tls: Some(Tls { version: "TLSv1.3", cipher: "TLS_AES_128_GCM_SHA256" }),
        upstream: Some(Upstream { address: "10.0.0.1:80".parse().unwrap(), uri: b"/up", status: Some(200) }),
        route: Some(Entity { id, name: Some("r") }),
        service: Some(Entity { id, name: None }),
        consumer: Some(Consumer { id, username: Some("ann"), custom_id: None }),
        ..record()
    };
    let id = id.to_string();
    let expected = json!({
        "request": {
            "id": "0123456789abcdef0123456789abcdef", "method": "GET", "uri": "/a?x=1",
            "url": "https://example.com:8443/a?x=1", "querystring": {"x": "1"}, "size": 80,
            "headers": {"host": "example.com:8443", "referer": "http://r/", "user-agent": "curl/8"},
            "tls": {"version": "TLSv1.3", "cipher": "TLS_AES_128_GCM_SHA256"},
        },
        "response": {"status": 200, "size": 200},
        "latencies": {"request": 2.5, "kong": 1.0, "proxy": 1.2, "receive": 0.3},
        "tries": [{"ip": "10.0.0.1", "port": 80}],
        "upstream_uri": "/up", "upstream_status": "200",
        "route": {"id": id, "name": "r"}, "service": {"id": id}, "consumer": {"id": id, "username": "ann"},
        "client_ip": "203.0.113.9", "started_at": 951_827_696_789_u64, "source": "upstream",
    });
    assert_eq!(parsed(&full), expected);
}

#[test]
fn json_names_query_arguments() {
    let target = b"/?a=1&b&a=%41+%zz&&c%3D=&=v";
    let query = &parsed(&Record { target, ..record() })["request"]["querystring"];
    assert_eq!(*query, json!({"a": ["1", "A %zz"], "b": true, "c=": "", "": "v"}));
}

#[test]
fn json_names_a_bounded_number_of_query_arguments() {
    let target = format!("/?{}", (0..1000).map(|i| format!("a{i}=1&")).collect::<String>());
    let query = &parsed(&Record { target: target.as_bytes(), ..record() })["request"]["querystring"];
    assert_eq!(query.as_object().unwrap().len(), 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_record_is_one_line_of_clean_text(agent: Vec<u8>, target: Vec<u8>) {
        let record = Record { user_agent: Some(&agent), target: &target, ..record() };
        for line in [combined(&record), json_text(&record)] {
            prop_assert!(line.ends_with('\n'));
            prop_assert!(!line[..line.len() - 1].contains(|c: char| c.is_control()));
        }
        let json = parsed(&record);
        let logged = json["request"]["headers"]["user-agent"].as_str().unwrap();
        prop_assert_eq!(logged, String::from_utf8_lossy(&agent));
        prop_assert_eq!(combined(&record).matches('"').count(), 8);
    }

    #[test]
    fn dates_follow_the_calendar(days in 0_u64..400_000) {
        prop_assert_eq!(civil(days), counted(days));
    }
}

/// The date by counting years and months one by one.
fn counted(mut days: u64) -> (u64, usize, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month + 1, days + 1)
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap().lines().count()
}

#[test]
fn records_of_all_workers_reach_the_file_in_whole_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = AccessLog::open(Target::File(path.clone()), Format::Json).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let worker = log.worker();
            scope.spawn(move || (0..500).for_each(|_| worker.write(&record())));
        }
    });
    log.flush();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().filter(|line| serde_json::from_str::<Value>(line).is_ok()).count(), 2000);
    assert_eq!(text.lines().count(), 2000);
    assert_eq!(log.dropped(), 0);
}

#[tokio::test]
async fn a_single_record_is_written_before_long() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = AccessLog::open(Target::File(path.clone()), Format::Combined).unwrap();
    let worker = log.worker();
    worker.write(&record());
    let written = async {
        while lines(&path) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = worker.flush_regularly() => {}
        outcome = tokio::time::timeout(Duration::from_secs(20), written) => outcome.unwrap(),
    }
    assert_eq!(lines(&path), 1);
}

#[test]
fn reopening_follows_a_renamed_file() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let log = AccessLog::open(Target::File(path.clone()), Format::Combined).unwrap();
    let worker = log.worker();
    worker.write(&record());
    worker.flush();
    std::fs::rename(&path, &old).unwrap();
    log.reopen().unwrap();
    worker.write(&record());
    worker.write(&record());
    worker.flush();
    log.flush();
    assert_eq!((lines(&old), lines(&path)), (1, 2));
}

#[test]
fn a_failing_reopen_keeps_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    let log = AccessLog::open(Target::File(logs.join("access.log")), Format::Combined).unwrap();
    let (moved, worker) = (folder.path().join("moved"), log.worker());
    std::fs::rename(&logs, &moved).unwrap();
    log.reopen().unwrap_err();
    worker.write(&record());
    drop(worker);
    log.flush();
    assert_eq!(lines(&moved.join("access.log")), 1);
}

#[test]
fn a_stuck_output_costs_records_not_time_or_memory() {
    let (queue, messages) = Queue::new();
    let log = AccessLog { format: Format::Json, path: None, queue: Arc::new(queue) };
    let (reader, stuck) = io::pipe().unwrap();
    log.start(Output::of(OwnedFd::from(stuck).into(), "a pipe"), messages).unwrap();
    let worker = log.worker();
    let mut written = 0;
    while log.dropped() < 1000 {
        worker.write(&record());
        written += 1;
    }
    // Linux gives a pipe 64 KiB.
    let bound =
        (writer::QUEUED_BATCHES as u64 + 4) * (BATCH_BYTES as u64 + 1024) + WORKER_BYTES as u64 + 1024;
    assert!(written * (json_text(&record()).len() as u64) < bound + 1000 * 1024);
    assert_eq!(log.dropped(), 1000);
    drop(reader);
}

/// `/dev/full` is a disk that is always full.
#[test]
fn a_full_disk_counts_its_records() {
    let log = AccessLog::open(Target::File("/dev/full".into()), Format::Combined).unwrap();
    let worker = log.worker();
    worker.write(&record());
    worker.write(&record());
    drop(worker);
    log.flush();
    assert_eq!(log.dropped(), 2);
}

#[test]
fn a_line_that_has_no_end_is_ended_before_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    std::fs::write(&path, "torn by a power cut").unwrap();
    let log = AccessLog::open(Target::File(path.clone()), Format::Combined).unwrap();
    let worker = log.worker();
    let write = || {
        worker.write(&record());
        worker.flush();
        log.flush();
    };
    write();
    let line = combined(&record());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("torn by a power cut\n{line}"));
    std::fs::write(&path, "torn again").unwrap();
    log.reopen().unwrap();
    write();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("torn again\n{line}"));
    std::fs::write(&path, "torn, and then the file is emptied to make room").unwrap();
    log.reopen().unwrap();
    log.flush();
    std::fs::write(&path, "").unwrap();
    write();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), line);
}

#[test]
fn off_takes_nothing() {
    let log = AccessLog::open(Target::File("/nonexistent/access.log".into()), Format::Off).unwrap();
    let worker = log.worker();
    assert!(!worker.is_on());
    worker.write(&record());
    worker.flush();
    assert_eq!(log.dropped(), 0);
    AccessLog::open(Target::File("/nonexistent/access.log".into()), Format::Json).err().unwrap();
}
