//! apisix-aws-lambda, openfunction and openwhisk with functions on this machine. Signatures are in `clients`, with botocore.
use crate::harness::{Gateway, Message, Upstream};
use serde_json::{Value as Json, json};
use std::net::SocketAddr;

/// A gateway whose route `/f` has the plugin.
fn gateway(plugin: &str, config: &Json) -> Gateway {
    let plugin = json!({ "name": plugin, "config": config });
    let route = json!({ "name": "r", "paths": ["/f"], "plugins": [plugin] });
    Gateway::start(&json!({ "_format_version": "3.0", "routes": [route] }).to_string())
}

fn send(gateway: &Gateway, method: &str, target: &str, headers: &str, body: &str) -> Message {
    let length = body.len();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: gateway.test\r\n{headers}Content-Length: {length}\r\n\r\n"
    );
    gateway.connect().send(head + body).response_to(method)
}

/// The lines of the request that the function got, in small letters.
fn lines(message: &Message) -> Vec<String> {
    assert_eq!(message.status, 200, "{}", message.text());
    message.text().to_ascii_lowercase().lines().map(str::to_owned).collect()
}

fn answering(body: &str, status: &str) -> Upstream {
    let length = body.len();
    Upstream::answering(&format!(
        "HTTP/1.1 {status}\r\nX-OpenWhisk: 1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
}

#[test]
fn functions_get_the_request_with_what_authorizes_the_gateway() {
    let function = Upstream::echoing();
    let uri = format!("http://{}/default/f", function.address);
    for (plugin, authorization, own) in [
        ("apisix-aws-lambda", json!({ "apikey": "hunter2" }), "x-api-key: hunter2"),
        ("openfunction", json!({ "service_token": "test:test" }), "authorization: basic dgvzddp0zxn0"),
    ] {
        let gateway = gateway(plugin, &json!({ "function_uri": uri, "authorization": authorization }));
        let headers = "X-Tag: x\r\nConnection: X-Hop\r\nX-Hop: 1\r\n";
        let lines = lines(&send(&gateway, "PUT", "/f/orders/7?a=b%20c", headers, "hello"));
        assert_eq!(lines[0], "put /default/f/orders/7?a=b%20c http/1.1", "{plugin}");
        let host = format!("host: {}", function.address);
        for line in [own, host.as_str(), "x-tag: x", "content-length: 5", "hello"] {
            assert!(lines.iter().any(|found| found == line), "{plugin}: {line}: {lines:?}");
        }
        assert!(!lines.iter().any(|line| line.contains("x-hop")), "{plugin}: {lines:?}");
        assert_eq!(
            self::lines(&send(&gateway, "GET", "/f", "", ""))[0],
            "get /default/f http/1.1",
            "{plugin}"
        );
        assert!(!gateway.log().contains("hunter2"));
    }
}

#[test]
fn a_result_that_is_no_response_is_logged_with_its_request() {
    let function = answering("[]", "200 OK");
    let config = json!({
        "aws_key": "a", "aws_secret": "b", "aws_region": "eu-west-1", "function_name": "f", "host": "127.0.0.1",
        "port": function.address.port(), "disable_https": true, "is_proxy_integration": true,
    });
    let gateway = gateway("aws-lambda", &config);
    let answer = gateway.get("/f");
    assert_eq!(answer.status, 502, "{}", answer.text());
    let id = answer.header("x-kong-request-id").unwrap();
    let log = gateway.log();
    let mut lines = log.lines().filter(|line| line.contains("is not that of a proxy integration"));
    assert!(lines.next().is_some_and(|line| line.contains(id)), "{log}");
}

#[test]
fn a_clients_own_authorization_stays_with_aws_and_is_replaced_with_openfunction() {
    let function = Upstream::echoing();
    let uri = format!("http://{}/", function.address);
    let iam = json!({ "accesskey": "AKID", "secretkey": "s3cret" });
    let of = |plugin: &str, authorization: Json, header: &str| {
        let gateway = gateway(plugin, &json!({ "function_uri": uri, "authorization": authorization }));
        let lines = lines(&send(&gateway, "GET", "/f", header, ""));
        let is_named = |line: &&String| line.starts_with("authorization:") || line.starts_with("x-api-key:");
        lines.iter().filter(is_named).cloned().collect::<Vec<_>>()
    };
    let key = of("apisix-aws-lambda", json!({ "apikey": "k", "iam": iam }), "X-Api-Key: own\r\n");
    assert_eq!(key, ["x-api-key: own"]);
    assert_eq!(of("apisix-aws-lambda", json!({ "apikey": "k", "iam": iam }), ""), ["x-api-key: k"]);
    let own = of("apisix-aws-lambda", json!({ "iam": iam }), "Authorization: own\r\n");
    assert_eq!(own, ["authorization: own"]);
    let signed = of("apisix-aws-lambda", json!({ "iam": iam }), "");
    assert!(signed.len() == 1 && signed[0].contains("/us-east-1/execute-api/aws4_request"), "{signed:?}");
    let token = of("openfunction", json!({ "service_token": "a:b" }), "Authorization: own\r\n");
    assert_eq!(token, ["authorization: basic ytpi"]);
    assert_eq!(of("openfunction", Json::Null, "Authorization: own\r\n"), ["authorization: own"]);
}

#[test]
fn the_functions_response_is_the_clients() {
    let function = answering("no", "418 Teapot");
    let uri = format!("http://{}/f", function.address);
    for plugin in ["apisix-aws-lambda", "openfunction"] {
        let response = gateway(plugin, &json!({ "function_uri": uri })).get("/f");
        assert_eq!((response.status, response.text()), (418, "no"), "{plugin}");
        assert_eq!(response.header("content-type"), Some("application/json"), "{plugin}");
        assert_eq!(response.header("via"), Some("1.1 weir"), "{plugin}");
    }
}

fn whisk(function: SocketAddr, more: &Json) -> Gateway {
    let mut config = json!({ "api_host": format!("http://{function}/"), "service_token": "name:word", "namespace": "guest", "action": "hello" });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    gateway("openwhisk", &config)
}

#[test]
fn an_action_gets_the_body_alone() {
    let function = Upstream::start(|mut peer, _| {
        let request = peer.request().unwrap();
        let fields = request.head.fields.iter().map(|(name, value)| format!("{name}: {value}\n"));
        let said = format!("{}\n{}\n{}", request.head.start, fields.collect::<String>(), request.text());
        let body = json!({ "body": said }).to_string();
        peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    });
    let more = json!({ "namespace": "a b", "package": "p@q", "result": false, "timeout": 5000 });
    let gateway = whisk(function.address, &more);
    let body = r#"{"name":"x"}"#;
    let lines =
        lines(&send(&gateway, "PUT", "/f/more?a=1", "X-Tag: x\r\nContent-Type: text/plain\r\n", body));
    let target = "/api/v1/namespaces/a%20b/actions/p%40q/hello?blocking=true&result=false&timeout=5000";
    assert_eq!(lines[0], format!("post {target} http/1.1"));
    for line in ["authorization: basic bmftztp3b3jk", "content-type: application/json", body] {
        assert!(lines.iter().any(|found| found == line), "{line}: {lines:?}");
    }
    assert!(!lines.iter().any(|line| line.contains("x-tag") || line.contains("text/plain")), "{lines:?}");
}

#[test]
fn a_result_describes_the_response() {
    for (result, status, expected, content_type, body) in [
        (r#"{"ready": true}"#, "200 OK", 200, Some("application/json"), r#"{"ready": true}"#),
        (r#"{"error": "no"}"#, "401 No", 401, Some("application/json"), r#"{"error": "no"}"#),
        ("[1]", "200 OK", 200, Some("application/json"), "[1]"),
        ("", "202 Accepted", 202, None, ""),
        (r#"{"statusCode": 418, "body": "tea"}"#, "200 OK", 418, None, "tea"),
        (r#"{"body": {"a": 1}}"#, "200 OK", 200, Some("application/json"), r#"{"a":1}"#),
        (
            r#"{"headers": {"content-type": "text/html", "Set-Cookie": ["a=1", "b=2"], "Transfer-Encoding": "x", "A\r\nB": "x"}, "body": "<p>"}"#,
            "200 OK",
            200,
            Some("text/html"),
            "<p>",
        ),
    ] {
        let action = answering(result, status);
        let response = whisk(action.address, &json!({})).get("/f");
        assert_eq!((response.status, response.text()), (expected, body), "{result}");
        assert_eq!(response.header("content-type"), content_type, "{result}");
        assert_eq!((response.header("x-openwhisk"), response.header("a")), (None, None), "{result}");
        if result.contains("Set-Cookie") {
            assert_eq!(response.head.all("set-cookie"), ["a=1", "b=2"]);
        }
    }
}

#[test]
fn functions_that_fail_are_unavailable() {
    let silent = Upstream::start(|mut peer, _| {
        peer.rest();
    });
    let to = |address: SocketAddr| json!({ "function_uri": format!("http://{address}/"), "timeout": 100 });
    let (plain, wrong) = (answering("plain", "200 OK"), answering(r#"{"statusCode": 99}"#, "200 OK"));
    for (gateway, why) in [
        (
            gateway("apisix-aws-lambda", &to(silent.address)),
            "apisix-aws-lambda: the function did not answer: ",
        ),
        (gateway("openfunction", &to(silent.address)), "openfunction: the function did not answer: "),
        (whisk(silent.address, &json!({ "timeout": 100 })), "openwhisk: the function did not answer: "),
        (whisk(plain.address, &json!({})), "openwhisk: the response with the status 200 is not JSON: "),
        (whisk(wrong.address, &json!({})), "openwhisk: statusCode is no status: 99"),
    ] {
        let response = gateway.get("/f");
        let message = json!("The function did not answer");
        assert_eq!((response.status, &response.json()["message"]), (503, &message), "{why}");
        assert!(gateway.log().contains(why), "{why}: {}", gateway.log());
    }
}
