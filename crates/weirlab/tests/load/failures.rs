//! Servers that answer wrongly, oddly, or not at all.
use super::server::{Server, hang_up, plain};
use super::{errors, get, millis, plan, run};
use std::net::TcpListener;
use std::sync::atomic::AtomicBool;
use std::thread;
use weirlab::load::{self, Expect, LoadError, Outcome, Plan, RequestTemplate, Requests};

fn expecting(server: &Server, expect: Expect) -> Outcome {
    let template = RequestTemplate { expect, ..get("/") };
    run(&Plan { requests: Requests { templates: vec![template], variables: Vec::new() }, ..plan(server) })
}

#[test]
fn wrong_statuses_and_bodies_are_counted() {
    let server = Server::start(|request, writer| match request.number % 4 {
        0 => plain(writer, 404, "lost"),
        1 => plain(writer, 503, "busy"),
        2 => plain(writer, 200, "right"),
        _ => plain(writer, 200, "wrong"),
    });
    let status = |outcome: &Outcome, status| outcome.statuses.get(&status).copied().unwrap_or(0);
    let outcome = expecting(&server, Expect { body_contains: Some("gh".to_owned()), ..Expect::default() });
    assert_eq!(errors(&outcome, "status"), status(&outcome, 404) + status(&outcome, 503));
    assert_eq!(outcome.good + errors(&outcome, "body"), status(&outcome, 200));
    // Each edge of the window cuts through the requests that its four connections have in flight.
    assert!(outcome.good > 0 && outcome.good.abs_diff(errors(&outcome, "body")) <= 9);
    // A request in flight at the end counts among the latencies if it has waited longer than any that was answered.
    let unanswered = outcome.latencies.service.count() - outcome.good;
    assert!(unanswered <= 4, "{unanswered} latencies without an answer");

    let outcome = expecting(&server, Expect { status: vec![404], body_length: Some(4), ..Expect::default() });
    assert_eq!(outcome.good, status(&outcome, 404));
    let outcome = expecting(&server, Expect { status: vec![404], body_length: Some(5), ..Expect::default() });
    assert_eq!((outcome.good, errors(&outcome, "body")), (0, status(&outcome, 404)));
}

/// An answer of each kind, all of them right.
#[test]
fn answers_of_every_framing_are_understood() {
    let server = Server::start(|request, writer| {
        match request.number % 5 {
        0 => writer.write_all(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab\n\r\n2;x=y\r\ncd\r\n0\r\nT: v\r\n\r\n",
        ),
        1 => {
            writer.write_all(b"HTTP/1.1 200 OK\r\n\r\nab\ncd")?;
            hang_up()
        }
        2 => writer.write_all(b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab\ncd"),
        3 => {
            writer.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nab\ncd")?;
            hang_up()
        }
        _ => {
            for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab\ncd" {
                writer.write_all(&[*byte])?;
                thread::yield_now();
            }
            Ok(())
        }
    }
    });
    let expect = Expect { body_length: Some(5), body_contains: Some("b\nc".to_owned()), ..Expect::default() };
    let outcome = expecting(&server, expect);
    assert!(outcome.good > 10 && outcome.good == outcome.answers, "{outcome:?}");
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

#[test]
fn a_large_answer_comes_in_many_reads() {
    let body = "0123456789".repeat(100_000);
    let server = Server::start(move |_, writer| plain(writer, 200, &body));
    let expect = Expect { body_length: Some(1_000_000), ..Expect::default() };
    let outcome = expecting(&server, expect);
    assert!(outcome.good > 1 && outcome.errors.is_empty(), "{:?}", outcome.errors);
}

#[test]
fn head_and_no_content_have_no_body() {
    let server = Server::start(|request, writer| {
        let text: &[u8] = match request.number % 2 {
            0 => b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n",
            _ => b"HTTP/1.1 204 No Content\r\n\r\n",
        };
        writer.write_all(text)
    });
    let template = RequestTemplate { method: "HEAD".to_owned(), ..get("/") };
    let requests = Requests { templates: vec![template], variables: Vec::new() };
    let outcome = run(&Plan { requests, ..plan(&server) });
    assert!(outcome.good > 10 && outcome.errors.is_empty(), "{:?}", outcome.errors);
    assert_eq!(server.connections(), 4);
}

#[test]
fn connections_that_are_cut_are_counted_and_made_anew() {
    let server = Server::start(|request, writer| match request.number % 7 {
        6 => hang_up(),
        5 => {
            writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")?;
            hang_up()
        }
        _ => plain(writer, 200, "fine"),
    });
    let outcome = run(&plan(&server));
    let closed = errors(&outcome, "closed") + errors(&outcome, "read");
    assert!(closed > 2 && outcome.good > 2 * closed - 20, "{} {:?}", outcome.good, outcome.errors);
    assert_eq!(
        outcome.errors.keys().filter(|class| !["closed", "read"].contains(&class.as_str())).count(),
        0
    );
}

#[test]
fn what_is_not_http_is_malformed_and_does_not_make_it_spin() {
    let server = Server::start(|_, writer| writer.write_all(b"220 mail.test ESMTP\r\n"));
    let outcome = run(&Plan { connections: 1, ..plan(&server) });
    let malformed = errors(&outcome, "malformed");
    assert_eq!((outcome.answers, outcome.errors.len()), (0, 1), "{:?}", outcome.errors);
    // 1 + 2 + 4 + … ms: nine within half a second.
    assert!((3..=11).contains(&malformed), "{malformed}");
}

#[test]
fn bytes_that_nobody_asked_for_are_malformed() {
    let server = Server::start(|_, writer| plain(writer, 200, "").and_then(|()| plain(writer, 200, "")));
    let outcome = run(&plan(&server));
    assert!(errors(&outcome, "malformed") > 0, "{:?}", outcome.errors);
}

#[test]
fn an_answer_that_never_comes_is_a_timeout() {
    let server = Server::start(|request, writer| {
        if request.number % 10 == 3 {
            thread::sleep(millis(2000));
        }
        plain(writer, 200, "")
    });
    let outcome = run(&Plan { timeout: millis(50), connections: 2, ..plan(&server) });
    assert!(errors(&outcome, "timeout") >= 2 && outcome.good >= 5, "{} {:?}", outcome.good, outcome.errors);
}

#[test]
fn a_target_that_dies_is_tried_again_with_patience() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let dead = Server::start(|_, _| hang_up());
    let plan = Plan { addresses: vec![address], connections: 1, ..plan(&dead) };
    thread::spawn(move || {
        // The one that looks whether anything listens.
        drop(listener.accept());
    });
    let outcome = run(&plan);
    let all: u64 = outcome.errors.values().sum();
    assert!(outcome.answers == 0 && (1..=12).contains(&all), "{:?}", outcome.errors);
}

#[test]
fn what_makes_no_load_at_all_says_so() {
    let server = Server::start(|_, writer| plain(writer, 200, ""));
    let refused = |plan: &Plan| load::run(plan, &mut |_| {}, &AtomicBool::new(false)).unwrap_err();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = refused(&Plan { addresses: vec![free], ..plan(&server) });
    assert!(matches!(error, LoadError::Unreachable(..)));
    assert!(error.to_string().starts_with(&format!("nothing listens at {free}")), "{error}");
    let error = refused(&Plan { connections: 1 << 30, ..plan(&server) });
    assert!(error.to_string().contains("open files"), "{error}");
    let error = refused(&Plan { requests: Requests::default(), ..plan(&server) });
    assert!(error.to_string().contains("no request"), "{error}");
}
