//! Many writers at once, and what a write promises to who sent it.
use crate::harness::{Gateway, Message, Peer, Upstream};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::thread;

fn send(client: &mut Peer, method: &str, path: &str, body: &Value) -> Message {
    let body = body.to_string();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    client.send(request).response_to(method)
}

fn admin(gateway: &Gateway) -> Peer {
    Peer::connect(gateway.admin_addresses()[0])
}

#[test]
fn ten_writers_lose_nothing() {
    let gateway = Gateway::empty().start();
    thread::scope(|scope| {
        for writer in 0..10 {
            let gateway = &gateway;
            scope.spawn(move || {
                let mut client = admin(gateway);
                for number in 0..20 {
                    let name = format!("w{writer}-{number}");
                    let service =
                        send(&mut client, "PUT", &format!("/services/{name}"), &json!({ "host": "a.test" }));
                    assert_eq!(service.status, 200, "{}", service.text());
                    let route = json!({ "name": name, "paths": [format!("/{name}")] });
                    let route = send(&mut client, "POST", &format!("/services/{name}/routes"), &route);
                    assert_eq!(route.status, 201, "{}", route.text());
                }
            });
        }
    });
    for collection in ["services", "routes"] {
        let list = gateway.admin(&format!("/{collection}?size=1000")).json();
        let names: BTreeSet<&str> =
            list["data"].as_array().unwrap().iter().map(|entity| entity["name"].as_str().unwrap()).collect();
        assert_eq!(names.len(), 200, "{collection}");
    }
}

#[test]
fn of_writers_that_know_the_same_one_wins() {
    let gateway = Gateway::empty().start();
    let mut client = admin(&gateway);
    let created = send(&mut client, "POST", "/consumers", &json!({ "username": "a" }));
    let tag = created.header("etag").unwrap().to_owned();
    let statuses: Vec<u16> = thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|number| {
                let (gateway, tag) = (&gateway, &tag);
                scope.spawn(move || {
                    let body = json!({ "tags": [format!("t{number}")] }).to_string();
                    let request = format!(
                        "PATCH /consumers/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                         If-Match: {tag}\r\nContent-Length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    admin(gateway).send(request).response().status
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 412).count(), 7, "{statuses:?}");
}

#[test]
fn who_waits_for_a_write_is_served_by_it() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let gateway = Gateway::empty().set("workers", "2").start();
    let mut client = admin(&gateway);
    let service = json!({ "name": "s", "url": format!("http://{}", upstream.address) });
    assert_eq!(send(&mut client, "POST", "/services", &service).status, 201);
    for number in 0..10 {
        let path = format!("/p{number}");
        let route = json!({ "name": "r", "paths": [path], "service": { "name": "s" } });
        assert_eq!(send(&mut client, "PUT", "/routes/r?wait=true", &route).status, 200);
        for _ in 0..4 {
            assert_eq!(gateway.get(&path).status, 200);
        }
    }
    assert_eq!(send(&mut client, "DELETE", "/routes/r?wait=true", &json!({})).status, 204);
    assert_eq!(gateway.get("/p9").status, 404);
}
